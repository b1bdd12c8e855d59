"""The public Python interface names the types of its parameters and results: none is ``Any``, so that type checkers find typos."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType

import msgspec
import pytest

import amfs

#: Objects that people get from the public names, and use by their methods.
GIVEN = (
    ("amfs.client.files", "Files"),
    ("amfs.client.files", "Extent"),
    ("amfs.client.files", "Usage"),
    ("amfs.client.keyvalue", "KeyValue"),
    ("amfs.client.tree", "Entry"),
    ("amfs.cluster", "Listed"),
    ("amfs.display.html", "Drawing"),
    ("amfs.display.summary", "Failure"),
    ("amfs.functions.executor", "Executor"),
    ("amfs.operations.collective", "Moved"),
    ("amfs.operations.differences", "Difference"),
    ("amfs.operations.loading_common", "Transferred"),
    ("amfs.operations.shuffle", "Shuffled"),
    ("amfs.runs.api", "Handle"),
)
PLUGS = (("dask", "dask", ("get", "getter")), ("joblib", "joblib", ("AmfsBackend",)), ("parsl", "parsl", ("AmfsExecutor",)))


@cache
def names_of(module: ModuleType) -> dict[str, object]:
    """The names that annotations of a module may use: its own, and those that it imports for type checkers only."""
    names = dict(vars(module))
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for line in node.body:
                if isinstance(line, ast.ImportFrom) and line.module != "_typeshed":  # is no module: it is named in overloads only
                    source = importlib.import_module(str(line.module))
                    names |= {alias.asname or alias.name: getattr(source, alias.name) for alias in line.names}
    return names


def hints(thing: object, module: ModuleType) -> dict[str, object]:
    return typing.get_type_hints(thing, globalns=names_of(module))  # type: ignore[arg-type]


def public(thing: object) -> Iterator[tuple[str, object]]:
    """A function; or of a class its own public methods, properties and the fields of a struct, as (name, object with annotations)."""
    if not inspect.isclass(thing):
        yield "", thing
        return
    if hasattr(thing, "_fields") or issubclass(thing, msgspec.Struct):
        yield "", thing
    for name, member in vars(thing).items():
        if not name.startswith("_") or name in ("__init__", "__call__", "__enter__", "__exit__"):
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if inspect.isfunction(function):
                yield name, function


def has_any(annotation: object) -> bool:
    """Is it Any, or made of it? Keywords are looked at one by one."""
    if annotation is typing.Any:
        return True
    if typing.is_typeddict(annotation):
        module = sys.modules[annotation.__module__]
        return any(map(has_any, hints(annotation, module).values()))
    if isinstance(annotation, (list, tuple)):  # of a Callable
        return any(map(has_any, annotation))
    return any(map(has_any, typing.get_args(annotation)))


def untyped(thing: object) -> list[str]:
    """Where a public name has Any, or a parameter or result without a type."""
    found = []
    for member, annotated in public(thing):
        module = sys.modules[annotated.__module__]
        if not module.__name__.startswith("amfs"):
            continue
        known = hints(annotated, module)
        where = ".".join(filter(None, (getattr(thing, "__qualname__", str(thing)), member)))
        found += [f"{where}: {name}" for name, annotation in known.items() if has_any(annotation)]
        if inspect.isfunction(annotated):
            expected = [name for name in inspect.signature(annotated).parameters if name not in ("self", "cls")]
            found += [f"{where}: {name} has no type" for name in [*expected, "return"] if name not in known]
    return found


@pytest.mark.parametrize("name", amfs.__all__)
def test_public_names_are_typed_without_any(name: str) -> None:
    assert not untyped(getattr(amfs, name))


@pytest.mark.parametrize(("module", "name"), GIVEN)
def test_what_public_names_give_is_typed_without_any(module: str, name: str) -> None:
    assert not untyped(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize(("plug", "library", "names"), PLUGS)
def test_plugs_are_typed_without_any(plug: str, library: str, names: tuple[str, ...]) -> None:
    pytest.importorskip(library)
    module = importlib.import_module(f"amfs.plugs.{plug}")
    assert not [words for name in names for words in untyped(getattr(module, name))]


class Keywords(typing.TypedDict):
    key: list[typing.Any]


class Faulty:
    def told(self, first: int, **how: typing.Unpack[Keywords]) -> None: ...
    def untold(self, first, second: int) -> None: ...  # type: ignore[no-untyped-def]
    @property
    def value(self) -> typing.Any: ...


def test_any_is_found_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "__name__", "amfs.faulty")
    assert untyped(Faulty) == ["Faulty.told: how", "Faulty.untold: first has no type", "Faulty.value: return"]
    for annotation in (typing.Any, list[typing.Any], Callable[..., typing.Any], Callable[[typing.Any], int], typing.Unpack[Keywords]):
        assert has_any(annotation)
    assert not has_any(Callable[..., int]) and not has_any(dict[str, object] | None)
