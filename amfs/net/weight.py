"""An estimate of the encoded size of a message, without encoding it. Pure; the estimate is never much too small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_type_hints

import msgspec

from amfs.vocabulary import messages as m
from amfs.vocabulary.object_versions import ObjectVersion

_SMALL = 256  # a message of numbers
_PART = 64  # of a part, around its text and content


def weight(message: m.Message) -> int:
    weigh = _KINDS.get(type(message))
    return _SMALL + weigh(message) if weigh is not None else _SMALL


def _names(names: Sequence[str]) -> int:
    return 4 * sum(map(len, names)) + 4 * len(names)  # a letter is four bytes at most, escapes included


def _tasks(message: m.Submit | m.Assign) -> int:
    return sum(
        _PART + len(spec.body) + _names(spec.inputs) + _names(spec.shared) + _names(spec.outputs)
        + (_places(spec.options.paths) + _versions(spec.options.versions) if spec.options is not None else 0)
        for spec in message.tasks
    )  # fmt: skip


def _places(paths: dict[str, str]) -> int:
    return _names(tuple(paths)) + _names(tuple(paths.values()))


def _versions(versions: dict[str, ObjectVersion]) -> int:
    return _names(tuple(versions)) + sum(_PART + 4 * len(version.identity) for version in versions.values())


def _results(message: m.Results | m.Done) -> int:
    return sum(
        2 * _PART + len(result.stdout) + len(result.stderr) + 4 * len(result.detail) + 9 * len(result.sizes) for result in message.results
    )


def _content(message: m.Content) -> int:
    return sum(_PART + 4 * len(blob.name) + len(blob.data or b"") for blob in message.blobs)


def _run_begin(message: m.RunBegin) -> int:
    info = message.info
    return _names(info.env) + _places(info.paths)


def _value(value: object) -> int:
    kind = type(value)
    if kind in _NUMBERS:
        return 9
    weigh = _of_type.get(kind)
    if weigh is None:
        weigh = _of_type[kind] = _weigher(kind)
    return weigh(value)


def _weigher(kind: type[Any]) -> Callable[[Any], int]:
    """For values of one type: every question and answer between nodes is weighed, so that fields which are numbers are counted once."""
    if issubclass(kind, (bytes, bytearray, memoryview)):
        return lambda value: len(value) + 5
    if issubclass(kind, str):
        return lambda value: 4 * len(value) + 5
    if issubclass(kind, dict):
        return lambda value: 5 + sum(map(_value, value)) + sum(map(_value, value.values()))
    fields: tuple[str, ...] = getattr(kind, "__struct_fields__", ()) or getattr(kind, "_fields", ())
    if fields:
        try:
            hints = get_type_hints(kind)
        except NameError:  # a type that only the type checker knows
            hints = {}
        others = [name for name in fields if hints.get(name) not in _NUMBERS]
        known = _PART + 9 * (len(fields) - len(others))
        return (lambda value: known + sum([_value(getattr(value, name)) for name in others])) if others else (lambda value: known)
    if issubclass(kind, (list, tuple)):
        return lambda value: 5 + sum(map(_value, value))
    return (lambda value: _PART) if issubclass(kind, msgspec.Struct) else (lambda value: 9)


_NUMBERS = frozenset((int, bool, float, type(None)))
_of_type: dict[type, Callable[[Any], int]] = {}

_KINDS: dict[type, Callable[[Any], int]] = {
    m.Submit: _tasks,
    m.Assign: _tasks,
    m.Results: _results,
    m.Done: _results,
    m.Content: _content,
    m.RunBegin: _run_begin,
    m.PeerRequest: lambda message: _value(message.call),
    m.FsRequest: lambda message: _value(message.request),
    m.PeerResponse: lambda message: _value(message.value),
    m.FsResponse: lambda message: _value(message.value),
    m.Publish: lambda message: sum(_PART + 4 * len(file.name) for file in message.files),
    m.Located: lambda message: sum(_PART + 4 * len(file.name) + 9 * len(file.holders) for file in message.files),
    m.Flushed: lambda message: sum(_PART + 4 * len(name) + 4 * len(error) for name, _, error in message.files),
    m.FileFailed: lambda message: _names(message.names) + _names(message.causes),
    m.FinalizeFiles: lambda message: _names(message.finals) + _names(message.drops),
    m.View: lambda message: 9 * len(message.table) + sum(_PART * 4 + _names(member.endpoints) for member in message.members),
    m.ViewChange: lambda message: 9 * len(message.left) + sum(_PART * 4 + _names(member.endpoints) for member in message.joined),
    **dict.fromkeys(
        (m.Locate, m.Replica, m.Release, m.ReadAgain, m.Drop, m.Flush, m.Lost, m.Fetch, m.Poison), lambda message: _names(message.names)
    ),
}
