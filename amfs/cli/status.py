"""``amfs status``: sessions, their nodes, runs and the tasks at work; once, or every second."""

from __future__ import annotations

import time
from typing import Any

import click

from amfs.cli.completion import session_names

#: A node's counts, and people's words for them. Tasks that wait for files are in no queue yet.
_COLUMNS = {"slots": "slots", "running": "running", "ready": "wait for a slot", "parked": "wait for files", "files": "files"}
_SIZES = {"memory": "memory", "spilled": "spilled", "fs_spilled": "amfs:/ spilled"}  # of files of runs, of amfs:/; shown when there are any
AT_WORK_SHOWN = 10


@click.command()
@click.argument("name", required=False, shell_complete=session_names)
@click.option("--output", "form", type=click.Choice(["table", "json"]), default="table", help="What to print (default: table).")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=3.0, metavar="SECONDS", help="For the nodes to answer (default 3).")
@click.option("--watch", is_flag=True, help="Show it again and again until Ctrl-C; with --output json a frame on each line.")
@click.option("--every", type=click.FloatRange(min=0.2), default=1.0, metavar="SECONDS", help="For --watch (default 1).")
def status(name: str | None, form: str, timeout: float, watch: bool, every: float) -> int:
    """Show sessions, their nodes and what they are doing; runs, and the tasks at work with their age and memory.

    NAME is the name of a session or the path of a session file; without it, all sessions and runs of this user on this host.
    """
    if watch:
        return _watch(name, form, every)
    from amfs.client import discovery
    from amfs.display.summary import json_safe
    from amfs.errors import SessionError
    from amfs.live.reader import Reader
    from amfs.live.text import runs_text
    from amfs.net import records
    from amfs.runs import leftovers

    if name:
        chosen = [discovery.find(name)]
    else:
        for words in leftovers.in_words(leftovers.find(leftovers.places())):
            click.echo(f"amfs: {words}", err=True)
        chosen = [session for session in records.list_all() if discovery.is_live(session)]
    with Reader(name) as reader:
        frame = reader.frame()
        page = reader.page(AT_WORK_SHOWN, failed=0)
    if not chosen and not frame.runs:
        discovery.find()  # cleans up after the dead and says that there is none
    facts = [_look(session, timeout) for session in chosen]
    if form == "json":
        import msgspec

        told = json_safe({"sessions": facts, "runs": msgspec.to_builtins(frame.runs), "at_work": msgspec.to_builtins(page.at_work)})
        click.echo(msgspec.json.format(msgspec.json.encode(told)))
    else:
        for number, fact in enumerate(facts):
            if number:
                click.echo()
            _print(fact)
        if facts and frame.runs:
            click.echo()
        for line in runs_text(frame, page):
            click.echo(line)
    if facts and all(fact["error"] for fact in facts):
        raise SessionError("no session answers")
    return 0


def _watch(name: str | None, form: str, every: float) -> int:
    """Until Ctrl-C. On a terminal each frame takes the place of the one before."""
    import sys

    import msgspec

    from amfs.display.summary import json_safe
    from amfs.live.reader import Reader
    from amfs.live.text import frame_text

    with Reader(name) as reader:
        while True:
            begun = time.monotonic()
            frame = reader.frame()
            if form == "json":
                click.echo(msgspec.json.encode(json_safe(msgspec.to_builtins(frame))))
            else:
                lines = frame_text(frame, reader.page(AT_WORK_SHOWN, failed=0))
                clear = "\x1b[H\x1b[2J" if sys.stdout.isatty() else ""
                click.echo(clear + "\n".join([time.strftime("%H:%M:%S"), *lines, ""]))
            sys.stdout.flush()
            time.sleep(max(0.0, begun + every - time.monotonic()))


def _look(session: Any, timeout_s: float) -> dict[str, Any]:
    """A session by its own account, as plain data."""
    import msgspec

    from amfs.client.control import Client
    from amfs.errors import SessionError
    from amfs.provision import autoscale, ledger
    from amfs.vocabulary.messages import Status, StatusAsk

    fact: dict[str, Any] = {
        "name": session.name, "created": session.created, "host": session.host.partition("/")[0], "directory": str(session.directory),
        "epoch": 0, "manager": -1, "unit_size": session.unit_size, "error": "", "nodes": [], "jobs": [], "said": [], "policy": "",
        "wanted": 0, "paused": "",
    }  # fmt: skip
    if (book := ledger.load(session)) is not None:
        fact["jobs"] = [{**msgspec.structs.asdict(job), "state": job.state.name.lower()} for job in book.jobs.values()]
        fact["said"], fact["wanted"], fact["paused"] = book.said, book.wish.nodes, book.halted()
    if (auto := autoscale.load(session)) is not None:
        fact["policy"], fact["said"] = auto.state(), sorted([*fact["said"], *auto.said], key=lambda line: line[:8])  # by the clock
    known = {entry.node: entry for entry in session.nodes}
    members = {}
    answers: dict[int, Status] = {}
    try:
        with Client(session) as client:
            view = client.view(timeout_s)
            members = {member.node: member for member in view.members}
            fact.update(epoch=view.epoch, manager=view.manager, unit_size=view.unit_size)
            answers = client.ask({member: StatusAsk() for member in members}, Status, timeout_s)
    except SessionError as error:
        fact["error"] = str(error)
    for number in sorted(members.keys() | known.keys()):
        member, entry = members.get(number), known.get(number)
        up = "draining" if member is not None and member.draining else "up"
        state = up if number in answers else "silent" if member is not None else "gone" if not fact["error"] else "unknown"
        host = member.host if member is not None else entry.host if entry is not None else ""
        node: dict[str, Any] = {
            "node": number, "state": state, "host": host.partition("/")[0], "pid": entry.pid if entry is not None else 0,
            "slots": member.slots if member is not None else 0, "endpoints": list(member.endpoints) if member is not None else [],
        }  # fmt: skip
        if number in answers:
            node["epoch"] = answers[number].epoch
            node.update({key: value for key, value in answers[number].data.items() if key not in node})
            node["mounts"] = _mounts(session, number, host)
        fact["nodes"].append(node)
    return fact


def _mounts(session: Any, node: int, host: str) -> list[dict[str, Any]]:
    """Mounts that a node of this host serves; mounts on other hosts cannot be seen here."""
    from amfs.errors import SessionError
    from amfs.host import fusemounts
    from amfs.host.processes import host_id, same_machine

    if not same_machine(host, host_id()):
        return []
    try:
        answer = fusemounts.ask(str(session.directory), node, fusemounts.ListMounts(), timeout_s=1.0)
    except SessionError:
        return []
    return [{"path": mount.path, "adapter": mount.adapter, **mount.active} for mount in answer.mounts]


def _unheard(fact: dict[str, Any]) -> list[int]:
    """Members of which nobody knows what they lack: they have not answered, or not heard of the last change of the members."""
    members = [node for node in fact["nodes"] if node["state"] in ("up", "draining", "silent")]
    last = max([fact["epoch"], *(node.get("epoch", -1) for node in members)])
    return [node["node"] for node in members if node.get("epoch", -1) < last]


def _print(fact: dict[str, Any]) -> None:
    from amfs.display.progress import size_text

    nodes = fact["nodes"]
    up = [node for node in nodes if node["state"] in ("up", "draining") and "running" in node]
    minutes = int(max(0.0, time.time() - fact["created"]) // 60)
    age = f"{minutes // 1440} d {minutes // 60 % 24} h" if minutes >= 1440 else f"{minutes // 60} h {minutes % 60} min"
    slots = sum(node["slots"] for node in up)
    click.echo(f"{fact['name']}: {len(up)} of {len(nodes)} nodes up, {slots} slots, for {age}, epoch {fact['epoch']}")
    if fact["error"]:
        click.echo(f"  {fact['error']}")
    shown = [column for column in _COLUMNS if any(column in node for node in nodes)]
    sizes = [column for column in _SIZES if any(node.get(column) for node in nodes)]
    rows = [("node", "state", "host", "pid", *(_COLUMNS[column] for column in shown), *(_SIZES[size] for size in sizes))]
    for node in nodes:
        mark = "*" if node["node"] == fact["manager"] else ""
        cells = [f"{node['node']}{mark}", node["state"], node["host"], str(node["pid"] or "-")]
        amounts = (size_text(node[column]) if column in node else "-" for column in sizes)
        rows.append((*cells, *(str(node.get(column, "-")) for column in shown), *amounts))
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    left = {1, 2}  # text columns; numbers are set to the right
    for row in rows:
        padded = [cell.ljust(widths[place]) if place in left else cell.rjust(widths[place]) for place, cell in enumerate(row)]
        click.echo("  " + "  ".join(padded).rstrip())
    for job in fact["jobs"]:
        if job["state"] != "joined":
            node = f", node {job['node']}" if job["node"] >= 0 else ""
            click.echo(f"  job {job['job']}{node}: {job['state'].replace('_', ' ')}" + (f" ({job['why']})" if job["why"] else ""))
    if fact["wanted"]:
        replaced = "" if fact["paused"] else "; a job that ends by itself is replaced"
        click.echo(f"  {fact['wanted']} node{'s' if fact['wanted'] > 1 else ''} wanted{replaced}")
    if fact["paused"]:
        click.echo(f"  {fact['paused']}")
    if fact["policy"]:
        click.echo(f"  {fact['policy']}")
    for line in fact["said"][-5:]:
        click.echo(f"  {line}")
    limits: dict[tuple[int, str], list[str]] = {}
    for node in up:
        limits.setdefault((node.get("memory_limit", 0), node.get("why_limit", "")), []).append(str(node["node"]))
    for (limit, why), which in limits.items():
        of = "" if len(limits) == 1 else f"node{'s' if len(which) > 1 else ''} {', '.join(which)}: "
        click.echo(f"  {of}limit {size_text(limit)} a node: {why}" if limit else f"  {of}no limit: {why}")
    for node in nodes:
        if node.get("drain"):
            click.echo(f"  node {node['node']} {node['drain']}")
    alone = sum(node.get("partitions", 0) - node.get("backed_up", 0) for node in up)
    if alone and len(up) > 1:
        click.echo(f"  names of {alone} of {sum(node.get('partitions', 0) for node in up)} partitions of amfs:/ have no backup in step yet")
    lost = sum(node.get("names_lost", 0) for node in up)
    if lost:
        click.echo(f"  names of {lost} partitions of amfs:/ were lost: a missing one is EIO until amfs scrub --accept-lost-names")
    few = sum(node.get("few_copies", 0) for node in up)
    if few:
        size, s = sum(node.get("few_copies_bytes", 0) for node in up), ("s", "have") if few > 1 else ("", "has")
        click.echo(f"  {few} file{s[0]} of amfs:/ ({size} bytes) {s[1]} fewer copies than asked for")
    if unheard := _unheard(fact):
        silent = f"node{'s' if len(unheard) > 1 else ''} {', '.join(map(str, unheard))}"
        click.echo(f"  {silent}: no answer since the nodes last changed, so files may have fewer copies than asked for")
    for node in nodes:
        for mount in node.get("mounts", ()):
            how = "passthrough" if mount.get("passthrough") else "cached opens" if mount.get("no_open") else "through the node"
            click.echo(f"  node {node['node']} mounts {mount['path']}: {mount['adapter']}, {how}")
