"""Checks of messages that come from another process, before a node acts on them. Pure.

Types are checked when a frame is decoded. This module checks values that the types do not restrict, in messages whose content reaches a
launcher, a socket, a path or a table. The machines check messages that hold only counts and names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from amfs.vocabulary import messages as m
from amfs.vocabulary.object_versions import ObjectVersion

RUN_MAX = (1 << 32) - 1  # the launcher knows a run by 32 bits
NODE_MAX = 1 << 20
SLOTS_MAX = 1 << 16
TABLE_MAX = 1 << 20
CAPTURE_MAX = 64 << 20
ENDPOINTS_MAX = 64
NAME_MAX = 1 << 16  # bytes of a name; longer ones no file system takes
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.")
_ENDPOINT = re.compile(r"(tcp://(\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]]+):\d{1,5}|ipc://[^\0]{1,107})\Z")


def fault(message: m.Message) -> str:
    """The fault of a message, in words; "" if none is known."""
    check = _CHECKS.get(type(message))
    return check(message) if check is not None else ""


def _run(message: Any) -> str:
    return "" if 0 <= message.run <= RUN_MAX else f"there cannot be a run {message.run}"


def _names(message: Any) -> str:
    scope = f"{message.run}/"
    bad = next((name for name in message.names if not _is_key(name, scope)), None)
    return _run(message) or (f"{bad[:100]!r} is no name of a file of run {message.run}" if bad is not None else "")


def _is_key(name: str, scope: str) -> bool:
    rest = name[len(scope) :]
    return (
        name.startswith(scope) and rest != "" and len(name) <= NAME_MAX and "\0" not in rest
        and (".." not in rest or ".." not in rest.split("/"))
    )  # fmt: skip


def _run_begin(message: m.RunBegin) -> str:
    info = message.info
    if info.scope != f"{message.run}/":
        return f"the scope of run {message.run} cannot be {info.scope[:100]!r}"
    if not info.base.startswith("/") or "\0" in info.base:
        return "the directory of a run must be an absolute path"
    if any("=" not in entry[1:] or entry[0] == "=" or "\0" in entry for entry in info.env):
        return "an entry of the environment is not NAME=VALUE"
    if not (0 <= info.capture_bytes <= CAPTURE_MAX and 0 <= info.hashed_outputs <= NODE_MAX and 0 <= info.umask <= 0o777):
        return "a number of a run is out of its range"
    if not -20 <= info.nice <= m.AS_NODE or len(info.limits) > 32 or any(not -2 <= n < 1 << 63 for n in info.limits):
        return "the niceness or a limit of a run is out of its range"
    if any(not _is_path(path) for path in info.paths.values()):
        return "a shared input is not at an absolute path or a URL"
    return _run(message) or ("" if message.client >= m.CLIENT_ID_MIN else f"a submitter cannot have the id {message.client}")


def _is_path(path: str) -> bool:
    return (path.startswith(("/", "amfs:/")) or _URL.match(path) is not None) and "\0" not in path


def _submit(message: m.Submit) -> str:
    part = next((spec.tid for spec in message.tasks if spec.tid < 0), 0)
    return f"task #{part} is a part of a reduction, which dispatchers make" if part else _tasks(message)


def _tasks(message: Any) -> str:
    scope = f"{message.run}/"
    for spec in message.tasks:
        if len(spec.outputs) != len(spec.retentions):
            return f"task #{spec.tid} has {len(spec.outputs)} outputs and {len(spec.retentions)} retentions"
        if len(spec.body) < 8:
            return f"task #{spec.tid} has no command"
        if not all(_is_key(name, scope) for names in (spec.inputs, spec.shared, spec.outputs) for name in names):
            return f"task #{spec.tid} has a file without a name of run {message.run}"
        if spec.options is not None and not _options(spec.options):
            return f"a number of task #{spec.tid} is out of its range"
        if spec.options is not None and not all(map(_is_version, spec.options.versions.values())):
            return f"task #{spec.tid} has an input in a version that cannot be"
    return _run(message)


def _is_version(version: ObjectVersion) -> bool:
    """The identity goes into requests, the time to a file."""
    return 0 <= version.size < 1 << 63 and 0 <= version.mtime < 1 << 63 and len(version.identity) <= 4096 and version.identity.isprintable()


def _options(options: m.Options) -> bool:
    word = 1 << 32
    small = (options.cores, options.time_limit_ms, options.retries, options.reduce, options.depth)
    if min(small) < 0 or max(small) >= word or not 0 <= options.memory < 1 << 62:
        return False
    return abs(options.priority) < word and -1 <= options.pin < word


def _content(message: m.Content) -> str:
    for blob in message.blobs:
        if not _is_key(blob.name, f"{message.run}/") or not (
            0 <= blob.size < 1 << 63 and 0 <= blob.mode <= 0o7777 and 0 <= blob.mtime_ns < 1 << 63
        ):
            return f"the content of {blob.name[:100]!r} makes no sense"
    return _run(message)


def _member(member: m.Member) -> str:
    if not (-1 <= member.node <= NODE_MAX and 0 <= member.incarnation < 1 << 63 and 0 <= member.slots <= SLOTS_MAX):
        return f"a number of node {member.node} is out of its range"
    if not 0 <= member.data_port < 65536:
        return f"a number of node {member.node} is out of its range"
    if len(member.endpoints) > ENDPOINTS_MAX or "\0" in member.host:
        return f"node {member.node} cannot be reached so"
    bad = next((endpoint for endpoint in member.endpoints if not _ENDPOINT.match(endpoint)), None)
    return f"node {member.node} cannot be reached at {bad[:100]!r}" if bad is not None else ""


def _view(message: m.View) -> str:
    nodes = {member.node for member in message.members}
    if not (0 <= message.epoch < 1 << 53 and 0 <= message.unit_size <= NODE_MAX) or len(nodes) < len(message.members):
        return "a number of the view is out of its range"
    whole = message.manager in nodes and 0 < len(message.table) <= TABLE_MAX and nodes.issuperset(message.table)
    if message.members and not whole:
        return "the view speaks of nodes that it does not have"
    return _first(_member(member) or ("" if member.node >= 0 else "a member without a number") for member in message.members)


def _view_change(message: m.ViewChange) -> str:
    nodes = (message.manager, *message.left, *message.draining)
    if not (0 <= message.base_epoch < 1 << 53 and all(0 <= node <= NODE_MAX for node in nodes)):
        return "a number of the change is out of its range"
    if message.manager in message.left:
        return "the change leaves out the manager that makes it"
    return _first(_member(member) or ("" if member.node >= 0 else "a member without a number") for member in message.joined)


def _first(faults: Iterable[str]) -> str:
    return next(filter(None, faults), "")


def _fs_request(message: m.FsRequest) -> str:
    limit = (1 << 32) - 1
    return "" if 0 <= message.uid < limit and 0 <= message.gid < limit else "there is no such user or group"


_CHECKS: dict[type, Callable[[Any], str]] = {
    m.RunBegin: _run_begin,
    m.Submit: _submit,
    m.Assign: _tasks,
    m.Fetch: _names,
    m.Drop: _names,
    m.Flush: _names,
    m.Content: _content,
    m.Join: lambda message: _member(message.member),
    m.View: _view,
    m.ViewChange: _view_change,
    m.Heartbeat: lambda message: "" if 0 <= message.epoch < 1 << 53 else f"there is no epoch {message.epoch}",
    m.DrainNode: lambda message: "" if 0 <= message.limit_ms < 1 << 40 else "there is no such time",
    m.FsRequest: _fs_request,
}
