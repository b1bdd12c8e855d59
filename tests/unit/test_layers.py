"""Imports go down only (docs/architecture.md, Layers), and the world is touched in one place each."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "amfs"

#: Lower number, lower layer; the first prefix that fits counts. Packages of one number do not import each other.
LAYERS: list[tuple[str, int]] = [
    ("amfs.cli", 14),
    ("amfs.__main__", 14),
    ("amfs.bench", 13),
    ("amfs.magic", 13),
    ("amfs.plugs", 13),
    ("amfs.cluster", 12),
    ("amfs.scripts", 12),
    ("amfs.functions", 11),
    ("amfs.live", 11),
    ("amfs.operations", 11),
    ("amfs.queueing", 11),
    ("amfs.runs", 10),
    ("amfs.node.core", 6),  # pure: both shells, node and sim, drive it
    ("amfs.node", 9),
    ("amfs.sim", 9),
    ("amfs.provision", 8),
    ("amfs.client", 7),
    ("amfs.net", 6),
    ("amfs.translate", 6),
    ("amfs.fs", 5),
    ("amfs.swift", 5),
    ("amfs.engine", 4),
    ("amfs.workflow", 3),
    ("amfs.vocabulary", 2),
    ("amfs.host", 2),
    ("amfs.remote", 3),
    ("amfs.display", 2),
    ("amfs.errors", 1),
    ("amfs.config", 1),
    ("amfs.patterns", 1),
    ("amfs.libexec", 2),
    ("amfs._native", 0),
    ("amfs", 0),  # the package itself: __version__
]
PACKAGES = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))

#: Pure although it lies in a layer with I/O: knows no socket, clock, file, thread or chance.
PURE_DIRECTORIES = ("vocabulary", "workflow", "engine", "fs/vfs", "swift")
PURE_FILES = ("node/core.py", "live/aggregate.py", "host/mount_ways.py")
IMPURE = {"socket", "time", "os", "random", "threading", "subprocess", "select", "asyncio", "multiprocessing", "secrets", "pathlib", "io"}

#: Foreign library -> the only modules that may import it.
ONLY_IN = {
    "zmq": {"amfs.net.sockets"},
    "mpi4py": {"amfs.provision.mpi"},
    "fuse": {"amfs.fs.fusepy_adapter"},
    "distributed": {"amfs.provision.guests"},
    "ray": {"amfs.provision.guests"},
    "click": {"amfs.cli"},
    "rich": {"amfs.cli", "amfs.display"},
    "starlette": {"amfs.live.web"},
    "uvicorn": {"amfs.live.web"},
    "prometheus_client": {"amfs.live.metrics"},
    "lark": {"amfs.swift", "amfs.translate.jx_parse", "amfs.translate.jx_evaluate"},
    "fsspec": {"amfs.client.fsspec", "amfs.remote.chirp", "amfs.remote.systems"},
    "obstore": {"amfs.remote.objects"},
    "benchmarks": set(),  # it is not installed
}

#: No file of code, benchmarks, examples or tests is longer.
LINES_MAX = 600
CODE = ("amfs", "csrc", "tests", "benchmarks", "examples", "plugins", "tools")
CODE_SUFFIXES = {".py", ".c", ".h", ".sh", ".awk", ".java"}


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def layer(module: str) -> int:
    return next(number for prefix, number in LAYERS if module == prefix or (prefix != "amfs" and module.startswith(prefix + ".")))


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports(module: str, path: Path, *, types: bool = False) -> frozenset[str]:
    """Absolute names of what a module imports when it runs, in functions too; with ``types`` also what only the type checker imports."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING") and not types:
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                name = f"{base}.{alias.name}"
                found.add(name if name in MODULES or name == "amfs._native" else base)
        for below in ast.iter_child_nodes(node):
            visit(below)

    visit(tree(path))
    return frozenset(found)


def within(module: str, where: str) -> bool:
    return module == where or module.startswith(where + ".")


def test_every_module_has_a_layer() -> None:
    for module in MODULES:
        assert module == "amfs" or any(within(module, prefix) for prefix, _ in LAYERS if prefix != "amfs"), f"{module} is in no layer"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_go_down(module: str) -> None:
    for other in imports(module, MODULES[module]):
        if within(other, "amfs") and other != module:
            assert layer(other) <= layer(module), f"{module} (layer {layer(module)}) imports {other} (layer {layer(other)})"
            packages = {name.split(".")[1] for name in (module, other) if "." in name}
            if layer(other) == layer(module):
                assert len(packages) == 1 or module == "amfs.__main__", f"{module} imports {other} beside it"


def test_no_modules_import_each_other() -> None:
    """Neither when they run nor for their types: where two need each other, one says as a Protocol what it needs."""
    graph = {
        module: [other for other in imports(module, path, types=True) if other in MODULES and other not in (module, "amfs")]
        for module, path in MODULES.items()
        if module != "amfs"  # its names are loaded on demand
    }
    circles = [part for part in nx.strongly_connected_components(nx.DiGraph(graph)) if len(part) > 1]
    assert not circles, circles


def test_every_package_says_in_one_sentence_what_it_is() -> None:
    picture = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for package in PACKAGES:
        sentence = ast.get_docstring(ast.parse((PACKAGE / package / "__init__.py").read_text(encoding="utf-8")))
        assert sentence, package
        assert f"| `{package}/` | {sentence} |" in picture, f"docs/architecture.md lacks: | `{package}/` | {sentence} |"


def test_the_places_that_the_architecture_names_are_there() -> None:
    table = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Where to go")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.count("`") > 2]
    assert rows
    for _, files, names in rows:
        for file, name in zip(re.findall("`(.*?)`", files), re.findall("`(.*?)`", names), strict=True):
            assert re.search(rf"\b{name}\b", (ROOT / file).read_text(encoding="utf-8")), f"{file} has no {name}"


def test_the_simulator_uses_the_pure_core_only() -> None:
    """sim and node are two shells over one core: the one thing of node that sim may import is that core."""
    for module, path in MODULES.items():
        if within(module, "amfs.sim"):
            assert not {name for name in imports(module, path) if within(name, "amfs.node")} - {"amfs.node.core", "amfs.node"}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_the_world_is_imported_in_one_place(module: str) -> None:
    for name in imports(module, MODULES[module]):
        for library, homes in ONLY_IN.items():
            if within(name, library):
                assert any(within(module, home) for home in homes), f"{module} imports {name}; only {sorted(homes)} may"


@pytest.mark.parametrize(
    "path",
    [p for p in MODULES.values() if p.relative_to(PACKAGE).parts[0] in PURE_DIRECTORIES or str(p.relative_to(PACKAGE)) in PURE_FILES],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_pure_modules_know_no_world(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    tainted = {name for name in imports(module, path) if name.split(".")[0] in IMPURE}
    assert not tainted, f"{module} imports {sorted(tainted)}"
    calls = {ast.unparse(node.func) for node in ast.walk(tree(path)) if isinstance(node, ast.Call)}
    assert not calls & {"open", "print", "input"}, f"{module} does I/O"


def test_no_file_is_too_long_to_read() -> None:
    files = [path for folder in CODE for path in (ROOT / folder).rglob("*") if path.suffix in CODE_SUFFIXES and path.is_file()]
    assert {path.relative_to(ROOT).parts[0] for path in files} == set(CODE)
    lines = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n") for path in files}
    assert {path: count for path, count in lines.items() if count > LINES_MAX} == {}
