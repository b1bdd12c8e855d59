"""Calls and includes between the files of ``csrc/`` go down: to lower folders, and inside a folder without circles.

A file's functions are those that it defines with external linkage.
"""

from __future__ import annotations

import re
from pathlib import Path

import networkx as nx
import pytest

CSRC = Path(__file__).resolve().parents[2] / "csrc"

#: Lower number, lower folder. Those of one number do not call each other.
FOLDERS = {
    "common": 0, "open": 1, "data/peers": 1, "data/state": 2, "data/store": 3, "data/striped": 4, "data": 5, "launcher": 6, "metadata": 6,
    "fuse": 7, "bindings": 8, "programs": 8,
}  # fmt: skip

#: One header, which each folder below data/ includes, declares their functions for the folders above.
CONTRACT = "data/fsio.h"

DEFINITION = re.compile(
    r"^(?!\w+ static\b|static\b|typedef\b|struct \w+ \{|enum\b|union\b|return\b|else\b)"
    r"[A-Za-z_][\w \t*]*?\b([a-z_]\w*)\([^;{}]*\)\s*\{",
    re.MULTILINE,
)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\])*\"", re.DOTALL)


def folder(path: str) -> str:
    return path.rpartition("/")[0]


def sources() -> dict[str, str]:
    """Path below csrc/ -> text without comments and strings."""
    paths = [path for path in sorted(CSRC.rglob("*.c")) if folder(str(path.relative_to(CSRC))) in FOLDERS]
    return {str(path.relative_to(CSRC)): COMMENT.sub(" ", path.read_text(encoding="utf-8")) for path in paths}


def calls() -> nx.DiGraph:
    """File -> file that has a function which it names."""
    texts = sources()
    home = {name: path for path, text in texts.items() if not path.startswith("programs/") for name in DEFINITION.findall(text)}
    graph = nx.DiGraph()
    graph.add_nodes_from(texts)
    for path, text in texts.items():
        for name in set(re.findall(r"\b[a-z_]\w*\b", text)) & home.keys():
            if home[name] != path:
                graph.add_edge(path, home[name], name=name)
    return graph


def includes() -> nx.DiGraph:
    """File -> header of ours that it includes."""
    graph = nx.DiGraph()
    for file in sorted(CSRC.rglob("*.[ch]")):
        for name in re.findall(r'^#include "([^"]+)"', file.read_text(encoding="utf-8"), re.MULTILINE):
            header = next(path for path in (file.parent / name, CSRC / name) if path.exists())
            graph.add_edge(str(file.relative_to(CSRC)), str(header.relative_to(CSRC)))
    return graph


GRAPH = calls()
INCLUDES = includes()


def test_the_graph_is_not_empty() -> None:
    assert len(GRAPH) > 60 and GRAPH.number_of_edges() > 300


@pytest.mark.parametrize("path", sorted(GRAPH))
def test_calls_go_to_lower_folders(path: str) -> None:
    for other, facts in GRAPH[path].items():
        if folder(other) != folder(path):
            assert FOLDERS[folder(other)] < FOLDERS[folder(path)], f"{path} calls {facts['name']} of {other}"


def test_every_folder_has_its_place() -> None:
    assert {folder(str(path.relative_to(CSRC))) for path in CSRC.rglob("*.[ch]")} == {*FOLDERS, "tests"}


@pytest.mark.parametrize("path", sorted(path for path in INCLUDES if folder(path) in FOLDERS))
def test_includes_go_to_lower_folders(path: str) -> None:
    for other in INCLUDES[path]:
        if folder(other) != folder(path) and other != CONTRACT:
            assert FOLDERS[folder(other)] < FOLDERS[folder(path)], f"{path} includes {other}"


def test_includes_have_no_circles() -> None:
    assert INCLUDES.number_of_edges() > 250
    assert nx.is_directed_acyclic_graph(INCLUDES)


@pytest.mark.parametrize("name", sorted(FOLDERS))
def test_there_are_no_circles_inside_a_folder(name: str) -> None:
    inside = GRAPH.subgraph([path for path in GRAPH if folder(path) == name])
    assert not [sorted(part) for part in nx.strongly_connected_components(inside) if len(part) > 1]
