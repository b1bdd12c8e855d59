"""``amfs simulate``: a workflow on a simulated cluster of any size."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amfs.cli.jx_options import definitions, with_jx_options
from amfs.cli.session_options import size_of
from amfs.errors import AmfsError, UsageError

if TYPE_CHECKING:
    from amfs.engine.policy import Policy
    from amfs.sim.settings import Costs, Faults
    from amfs.sim.simulate import Report
    from amfs.sim.workload import Workload

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(us|µs|ms|s|m|min|h)?\Z")
_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, None: 1.0}

#: name in --faults -> (field of Faults, value when none is given)
FAULTS: dict[str, tuple[str, float]] = {
    "loss": ("loss", 0.01),
    "duplication": ("duplication", 0.01),
    "jitter": ("jitter_s", 0.001),
    "crashes": ("crashes", 1),
    "partition": ("partition_s", 5.0),
    "broken": ("broken_tasks", 0.01),
    "flaky": ("flaky_tasks", 0.05),
    "storage": ("storage_errors", 0.01),
    "transfers": ("transfer_errors", 0.01),
}


def parse_time(text: str) -> float:
    """Seconds from "4s", "250ms", "50us", "2m" or "4". Raises UsageError."""
    match = _TIME.match(text.strip())
    if not match:
        raise UsageError(f"'{text}' is not a time: write for example 4s, 250ms or 50us")
    return float(match[1]) * _UNITS[match[2]]


def parse_faults(text: str, seed: int) -> Faults:
    """From "crashes=2,loss=0.01" or "all" (drawn from the seed). Raises UsageError."""
    from amfs.sim.settings import Faults, draw_faults

    if text == "all":
        return draw_faults(random.Random(seed))
    given: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name == "none":
            continue
        if name not in FAULTS:
            raise UsageError(f"--faults: there is no fault '{name}'; there are {', '.join(FAULTS)}, and 'all'")
        field, default = FAULTS[name]
        try:
            given[field] = type(default)(value) if value else default
        except ValueError:
            raise UsageError(f"--faults: '{value}' is no number, in {part.strip()}") from None
        if given[field] < 0 or (field not in ("crashes", "jitter_s", "partition_s") and given[field] > 1):
            raise UsageError(f"--faults: {part.strip()} is out of range")
    return Faults(**given)


@click.command()
@click.argument("workflow", required=False, type=click.Path(allow_dash=True))
@with_jx_options
@click.option("--bag", type=click.IntRange(1), metavar="N", help="Instead of WORKFLOW: N independent tasks a core.")
@click.option("--pairs", type=click.IntRange(1), metavar="N", help="Instead of WORKFLOW: N pairs a core, joined by a file, on two nodes.")
@click.option("--churn", type=click.IntRange(0), metavar="D", help="Instead of WORKFLOW: NODES nodes join a session, then D of them die.")
@click.option("--with-files", is_flag=True, help="With --churn: they have the session's file system, whose partitions move.")
@click.option("--nodes", type=click.IntRange(1, 65536), default=64, show_default=True)
@click.option("--slots", type=click.IntRange(1, 4096), default=4, show_default=True, help="Tasks at a time per node.")
@click.option("--unit-size", type=click.IntRange(0), default=64, show_default=True, help="Nodes per dispatcher; 0: one for all.")
@click.option("--task-time", default="1s", show_default=True, metavar="TIME", help="Run time of tasks without a recorded one: 4s, 250ms.")
@click.option("--file-size", default="10", show_default=True, metavar="SIZE", help="Size of files without a recorded one.")
@click.option("--time-scale", type=click.FloatRange(0), metavar="X", help="Recorded run times times this. Default: 1.")
@click.option("--size-scale", type=click.FloatRange(0), metavar="X", help="Recorded sizes times this. Default: 1.")
@click.option("--latency", metavar="TIME", help="Of a message. Default: as 'amfs bench costs' measured, else built in.")
@click.option("--bandwidth", metavar="SIZE", help="Of a node's network interface, a second. Default: as --latency.")
@click.option("--storage-bandwidth", default="2G", show_default=True, metavar="SIZE", help="Of shared storage, a second, for all.")
@click.option("--costs", type=click.Path(dir_okay=False), metavar="FILE", help="As 'amfs bench costs' writes it.")
@click.option("--placement", type=click.Choice(["data-aware", "even"]), default="data-aware", show_default=True)
@click.option("--no-stealing", is_flag=True, help="Idle nodes do not ask others for tasks.")
@click.option("--policy", metavar="FILE", help="Nodes come and go as it says: a file of rules, or default, lean, paper-1 or paper-2.")
@click.option("--policy-nodes", metavar="MIN..MAX", help="With --policy: never fewer or more nodes (default: as the policy says).")
@click.option("--memory", metavar="SIZE", help="Of a node, for files; the rest goes to its disk (default: without a limit).")
@click.option("--start-up", default="3s", show_default=True, metavar="TIME", help="With --policy: until a new node is there.")
@click.option("--faults", default="none", metavar="LIST", help=f"What goes wrong: NAME=VALUE,… of {', '.join(FAULTS)}; or 'all'.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides all that is left to chance.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def simulate(workflow: str | None, **given: Any) -> int:
    """Run WORKFLOW on a simulated cluster: the machines are those that run on a real one, only network, processes and time are not.

    WORKFLOW is what `amfs run` takes; its programs are not started, and its shared inputs need not exist. Tasks take the run times and
    files have the sizes that the workflow has recorded. Shows how long it would take, how busy the slots would be and what would be
    moved.
    """
    if given["churn"] is not None:
        return _churn(workflow, given)
    if given["with_files"]:
        raise UsageError("--with-files goes with --churn")
    if given["policy"] is not None:
        return _by_policy(workflow, given)
    if given["policy_nodes"]:
        raise UsageError("--policy-nodes goes with --policy")
    report = _simulate(workflow, given)
    if given["output"] == "json":
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        click.echo(table(report))
    return 3 if report.stopped else 1 if report.failed else 0


def _churn(workflow: str | None, given: dict[str, Any]) -> int:
    import msgspec

    from amfs.display.progress import table_text
    from amfs.sim.membership import simulate_membership

    nodes, deaths = given["nodes"], given["churn"]
    if workflow is not None or given["bag"] or given["pairs"]:
        raise UsageError("--churn simulates a session in which nothing runs; leave WORKFLOW, --bag and --pairs out")
    if deaths >= nodes:
        raise UsageError(f"--churn {deaths}: one of the {nodes} nodes has to be left")
    changes = simulate_membership(nodes, deaths=deaths, files=given["with_files"], costs=_costs(given["costs"]))
    if given["output"] == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(changes)).decode())
        return 0
    rows = [("change", "nodes", "messages", "bytes", "agreed after", "CPU of all nodes")]
    rows += [
        (one.what, str(one.nodes), str(one.messages), _bytes(one.bytes), f"{one.agreed_s:.2f} s", f"{one.cpu_s:.2f} s") for one in changes
    ]
    click.echo(table_text(rows))
    return 0


def _by_policy(workflow: str | None, given: dict[str, Any]) -> int:
    """The same with the fewest nodes of the policy, with the most, and as it says."""
    import msgspec

    from amfs.provision import policies
    from amfs.provision.submission import parse_nodes

    bounds = parse_nodes(given["policy_nodes"], "--policy-nodes") if given["policy_nodes"] else ()
    policy = policies.load(given["policy"], *bounds)
    fewest, most = (_simulate(workflow, {**given, "nodes": nodes}) for nodes in (policy.least, policy.most))
    elastic = _simulate(workflow, {**given, "nodes": policy.start or policy.least}, policy)
    if given["output"] == "json":
        reports = {"policy": elastic, "fewest": fewest, "most": most}
        click.echo(msgspec.json.format(msgspec.json.encode(reports)).decode())
    else:
        click.echo(policy_table(f"policy {policy.source}", elastic, fewest, most))
    return 3 if elastic.stopped else 1 if elastic.failed else 0


def policy_table(name: str, elastic: Report, fewest: Report, most: Report) -> str:
    """The run under the policy, beside runs with its fewest and its most nodes; and its decisions."""
    from amfs.display.progress import plural, table_text

    rows = [["", "nodes", "makespan", "node-hours", "slots busy"]]
    for title, report in (("fewest", fewest), ("most", most), (name, elastic)):
        nodes = f"{report.nodes}..{report.nodes_most}" if report is elastic else str(report.nodes)
        rows.append([title, nodes, f"{report.makespan_s:.1f} s", f"{report.node_s / 3600:.3f}", f"{100 * report.utilisation:.0f} %"])
    slower, saved = elastic.makespan_s / most.makespan_s - 1, 1 - elastic.node_s / most.node_s
    lines = [table_text(rows), f"beside the most nodes: {100 * slower:+.1f} % time, {-100 * saved:+.1f} % node-hours", ""]
    for one in elastic.decisions:
        lines.append(f"{one.at_s:9.1f} s  {one.reason}")
    if elastic.stopped or elastic.failed:
        lines.append(f"stopped: {elastic.stopped}" if elastic.stopped else f"{plural(elastic.failed, 'task')} failed")
    return "\n".join(lines)


def _simulate(workflow: str | None, given: dict[str, Any], policy: Policy | None = None) -> Report:
    import msgspec

    from amfs.sim.settings import Storage
    from amfs.sim.simulate import simulate as run
    from amfs.sim.world import Stuck

    seed = given["seed"]
    faults = parse_faults(given["faults"], seed)
    nodes, slots = given["nodes"], given["slots"]
    workload = _workload(workflow, given)
    if faults.broken_tasks or faults.flaky_tasks:
        workload.spoil(random.Random(seed), faults)
    costs = _costs(given["costs"])
    if given["latency"]:
        costs = msgspec.structs.replace(costs, latency_s=parse_time(given["latency"]))
    if given["bandwidth"]:
        costs = msgspec.structs.replace(costs, bandwidth_bytes_s=float(_positive("--bandwidth", given["bandwidth"])))
    try:
        return run(
            workload, nodes=nodes, slots=slots, unit_size=given["unit_size"], costs=costs,
            storage=Storage(float(_positive("--storage-bandwidth", given["storage_bandwidth"]))), faults=faults, seed=seed,
            data_aware=given["placement"] == "data-aware", stealing=not given["no_stealing"],
            policy=policy, memory=_positive("--memory", given["memory"]) if given["memory"] else 0, comes_s=parse_time(given["start_up"]),
        )  # fmt: skip
    except Stuck as error:
        raise AmfsError(f"the simulated run does not end: {error}") from error


def _positive(option: str, text: str) -> int:
    size = size_of(text)
    if size <= 0:
        raise UsageError(f"{option}: {text} is not more than nothing")
    return size


def _workload(workflow: str | None, given: dict[str, Any]) -> Workload:
    from amfs.sim import workload as made

    defined = definitions(given["jx_args"], given["jx_define"])
    if workflow is None and any(defined[:2]):
        raise UsageError("--jx-args and --jx-define go with a WORKFLOW: --bag and --pairs have nothing to define")
    seconds, size = parse_time(given["task_time"]), size_of(given["file_size"])
    if sum(choice is not None for choice in (workflow, given["bag"], given["pairs"])) != 1:
        raise UsageError("say what to simulate: a WORKFLOW, --bag or --pairs, and only one of them")
    scales = {name: given[name] for name in ("time_scale", "size_scale") if given[name] is not None}
    if scales and workflow is None:
        raise UsageError(f"--{next(iter(scales)).replace('_', '-')} goes with a WORKFLOW: --bag and --pairs have nothing recorded")
    if given["bag"]:
        return made.bag(given["nodes"] * given["slots"], given["bag"], seconds)
    if given["pairs"]:
        if given["nodes"] < 2:
            raise UsageError("--pairs needs at least two nodes: the tasks of a pair run on different ones")
        return made.pairs(given["nodes"], given["slots"], given["pairs"], seconds, size)
    from amfs.translate.detect import load
    from amfs.workflow.versions import versioned

    assert workflow is not None
    return made.from_workflow(versioned(load(workflow, definitions=defined)), seconds=seconds, bytes_each=size, **scales)


def _costs(path: str | None) -> Costs:
    import msgspec

    from amfs.bench.costs import load_costs
    from amfs.sim.settings import Costs

    return Costs(**msgspec.structs.asdict(load_costs(Path(path) if path else None)))


def table(report: Report) -> str:
    """The report as people read it."""
    units = f"{report.unit_size} nodes each" if report.unit_size else "one of all nodes"
    ended = f"{report.finished} of {report.tasks} finished" + (f", {report.failed} failed" if report.failed else "")
    rows = [
        ("workload", f"{report.workload}, {report.tasks} tasks" + (f", {report.timed} with a recorded run time" if report.timed else "")),
        ("cluster", f"{report.nodes} nodes, {report.slots} slots, units: {units}"),
        ("tasks", ended + (f"; stopped: {report.stopped}" if report.stopped else "")),
        ("makespan", f"{report.makespan_s:.3f} s"),
        ("dispatch rate", f"{report.dispatch_rate:.1f} tasks/s"),
        ("utilisation", f"{100 * report.utilisation:.2f} %"),
        ("between nodes", f"{_bytes(report.bytes_between_nodes)} of files, {_bytes(report.bytes_of_messages)} of messages"),
        ("shared storage", f"{_bytes(report.bytes_from_shared)} read, {_bytes(report.bytes_to_shared)} written"),
        ("busy", f"submitter {100 * report.submitter_busy:.1f} %, busiest node's loop {100 * report.dispatcher_busy:.1f} %"),
        ("simulated", f"{report.events} events in {report.simulated_in_s:.1f} s"),
    ]
    return "\n".join(f"{name:<15} {value}" for name, value in rows)


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
