"""Calls between the files of ``csrc/`` go down: to lower folders, and inside a folder without circles.

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
    "common": 0, "data/peers": 1, "data/state": 2, "data/store": 3, "data/striped": 4, "data": 5, "launcher": 6, "metadata": 6, "fuse": 7,
    "bindings": 8, "programs": 8,
}  # fmt: skip

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


GRAPH = calls()


def test_the_graph_is_not_empty() -> None:
    assert len(GRAPH) > 60 and GRAPH.number_of_edges() > 300


@pytest.mark.parametrize("path", sorted(GRAPH))
def test_calls_go_to_lower_folders(path: str) -> None:
    for other, facts in GRAPH[path].items():
        if folder(other) != folder(path):
            assert FOLDERS[folder(other)] < FOLDERS[folder(path)], f"{path} calls {facts['name']} of {other}"


@pytest.mark.parametrize("name", sorted(FOLDERS))
def test_there_are_no_circles_inside_a_folder(name: str) -> None:
    inside = GRAPH.subgraph([path for path in GRAPH if folder(path) == name])
    assert not [sorted(part) for part in nx.strongly_connected_components(inside) if len(part) > 1]
