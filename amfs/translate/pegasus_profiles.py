"""The meaning of Pegasus profiles for a task. Pure.

A profile is a key in a namespace (env, pegasus, condor, dagman, globus, hints, selector, stat). Some say what amfs can do: environment,
cores, memory, time limits, retries, priority, the recorded run time. The others are told as remarks, once per key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from amfs.translate.tasklist import parse_size

#: (namespace, key) -> value, the key spelled as in the source.
Profiles = dict[tuple[str, str], str]

#: Told once: (kind, line, message).
Remark = Callable[[str, int, str], None]

_MIB = 1 << 20


def _count(text: str) -> int:
    number = float(text)
    if not number.is_integer() or not 0 <= number < 1 << 31:
        raise ValueError
    return int(number)


def _signed(text: str) -> int:
    number = float(text)
    if not number.is_integer() or not -(1 << 31) <= number < 1 << 31:
        raise ValueError
    return int(number)


def _cores(text: str) -> int:
    return max(1, _count(text))


def _memory(text: str) -> int:
    """MiB when there is no unit, as Pegasus and HTCondor count."""
    plain = text.replace(" ", "")
    size = round(float(plain) * _MIB) if re.fullmatch(r"\d+(\.\d+)?", plain, re.ASCII) else parse_size(plain)
    if not 0 <= size < 1 << 63:
        raise ValueError
    return size


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number < 1e9:
        raise ValueError
    return number


def _minutes(text: str) -> float:
    hours = re.fullmatch(r"(\d+):(\d\d)(?::(\d\d))?", text, re.ASCII)
    if hours:
        return _seconds(str(int(hours[1]) * 3600 + int(hours[2]) * 60 + int(hours[3] or 0)))
    return 60 * _seconds(text)


#: namespace.key in lower case -> field of Task and how to read it. Of several for one field the first here counts.
_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "pegasus.cores": ("cores", _cores),
    "condor.request_cpus": ("cores", _cores),
    "globus.count": ("cores", _cores),
    "pegasus.memory": ("memory", _memory),
    "condor.request_memory": ("memory", _memory),
    "globus.maxmemory": ("memory", _memory),
    "pegasus.maxwalltime": ("time_limit", _minutes),
    "globus.maxwalltime": ("time_limit", _minutes),
    "globus.maxtime": ("time_limit", _minutes),
    "dagman.retry": ("retries", _count),
    "dagman.priority": ("priority", _signed),
    "condor.priority": ("priority", _signed),
    "pegasus.runtime": ("runtime", _seconds),
}

#: Understood elsewhere (which site, which program), or true of every run here.
_ELSEWHERE = {"hints.executionsite", "hints.execution.site", "hints.pfn", "condor.universe", "pegasus.style"}


def apply(profiles: Profiles, remark: Remark, line: int) -> dict[str, Any]:
    """The fields of ``Task`` that profiles set. ``profiles`` must have been merged already (see ``merge``)."""
    fields: dict[str, Any] = {}
    ranks: dict[str, int] = {}
    env: list[str] = []
    order = list(_FIELDS)
    for (namespace, key), value in profiles.items():
        if namespace == "env":
            env.append(f"{key}={value}")
            continue
        name = f"{namespace}.{key}".lower()
        if name in _ELSEWHERE:
            continue
        known = _FIELDS.get(name)
        if known is None:
            remark(f"profile {name}", line, f"the profile {namespace} {key!r} has no meaning here")
            continue
        field, convert = known
        rank = order.index(name)
        if rank > ranks.get(field, rank):
            continue
        try:
            fields[field] = convert(value.strip())
            ranks[field] = rank
        except ValueError:
            remark(f"value of {name}", line, f"the profile {namespace} {key!r} has the value {value!r}, of which nothing can be made here")
    if env:
        fields["env"] = tuple(env)
    return fields


def merge(layers: Iterable[Profiles]) -> Profiles:
    """Profiles of several sources as one: the first source that has a key counts. Keys but those of env are told apart without case."""
    found: Profiles = {}
    seen: set[tuple[str, str]] = set()
    for layer in layers:
        for (namespace, key), value in layer.items():
            folded = (namespace, key if namespace == "env" else key.lower())
            if folded not in seen:
                seen.add(folded)
                found[namespace, key] = value
    return found
