"""Pictures that can be read: boxes and titles do not overlap, lines run forward, and every form is what it says it is."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amfs.translate import dot, mermaid, svg
from amfs.translate.detect import load
from amfs.translate.layered import BOX_GAP, _crossings, _order, lay_out
from amfs.translate.shape import picture_of
from amfs.workflow.workflow import Task, Workflow

CORPUS = Path(__file__).parent.parent / "data" / "corpus"
NS = "{http://www.w3.org/2000/svg}"


def boxes(text: str) -> list[tuple[float, float, float, float, str]]:
    """(left, top, right, bottom, title) of every box of a picture."""
    found = []
    for group in ElementTree.fromstring(text).iter(f"{NS}g"):
        rect, label = group.find(f"{NS}rect"), group.find(f"{NS}text")
        if rect is None or label is None:
            continue
        x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        found.append((x, y, x + width, y + height, label.text or ""))
    return found


def check(text: str) -> None:
    """No two boxes overlap, titles fit their boxes, and everything lies inside of the picture."""
    root = ElementTree.fromstring(text)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    found = boxes(text)
    for left, top, right, bottom, title in found:
        assert svg.text_width(title) <= right - left
        assert left >= 0
        assert top >= 0
        assert right <= width
        assert bottom <= height
    for one, other in combinations(found, 2):
        apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        assert apart, f"{one} overlaps {other}"


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=50)
    tasks: list[Task] = []
    for number in range(draw(st.integers(1, 25))):
        earlier = draw(st.lists(st.integers(0, number - 1), max_size=3, unique=True)) if number else []
        ordered = draw(st.booleans())
        tasks.append(
            Task(
                draw(names) + f" {number}", (draw(st.sampled_from("abcdefghijklmnop")),),
                () if ordered else tuple(f"f{each}" for each in earlier), (f"f{number}",),
                after=tuple(tasks[each].id for each in earlier) if ordered else (),
            )
        )  # fmt: skip
    return Workflow(tasks, name=draw(names))


@given(workflows(), st.sampled_from([None, True, False]))
def test_nothing_overlaps(workflow: Workflow, grouped: bool | None) -> None:
    check(svg.write(workflow, grouped))


@pytest.mark.parametrize("name", ["pegasus5/montage-v3-79.yml", "pegasus5/wfbench-blast-43.yml", "wfformat/montage-recipe-58-v1.6.json"])
@pytest.mark.parametrize("grouped", [None, True, False])
def test_pictures_of_the_corpus(name: str, grouped: bool | None) -> None:
    workflow = load(CORPUS / name)
    text = svg.write(workflow, grouped)
    check(text)
    picture = picture_of(workflow, grouped)
    assert len(boxes(text)) == len(picture.groups)
    assert text.count("marker-end") == len(picture.edges)


def test_control_characters_and_markup_in_names_do_no_harm() -> None:
    name = "<b>&\"'\x01\udcff\uffff]]>"
    text = svg.write(Workflow([Task(name, (name,), label=name)], name=name))
    check(text)
    assert "<b>" not in text


def test_long_titles_keep_their_ends() -> None:
    assert svg._short("a" * 50 + "_0001") == "a" * 21 + "…" + "aaaaaaa_0001"
    assert len(svg._short("x" * 500)) == 34


def test_kinds_have_colours_of_their_own_as_long_as_there_are_enough() -> None:
    picture = picture_of(Workflow([Task(str(n), (f"k{n}",)) for n in range(len(svg.COLOURS))]))
    assert len(set(svg.colours_of(picture).values())) == len(svg.COLOURS)


# ── layout ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_crossing_that_can_be_avoided_is_avoided() -> None:
    left: list[list[int]] = [[], [], [1], [0]]
    right: list[list[int]] = [[3], [2], [], []]
    assert _crossings([[0, 1], [2, 3]], right) == 1
    assert _crossings(_order([[0, 1], [2, 3]], left, right), right) == 0


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20, unique=True))
def test_crossings_are_counted(edges: list[tuple[int, int]]) -> None:
    right: list[list[int]] = [[] for _ in range(16)]
    for start, end in edges:
        right[start].append(8 + end)
    slow = sum((a < c and b > d) or (a > c and b < d) for (a, b), (c, d) in combinations(edges, 2))
    assert _crossings([list(range(8)), list(range(8, 16))], right) == slow


@given(st.data())
def test_distances_are_kept_and_lines_pass_through_every_column(data: st.DataObject) -> None:
    columns = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=20))
    pairs = [(a, b) for a in range(len(columns)) for b in range(len(columns)) if columns[a] < columns[b]]
    edges = data.draw(st.lists(st.sampled_from(pairs), max_size=25, unique=True)) if pairs else []
    heights = data.draw(st.lists(st.floats(5, 40), min_size=len(columns), max_size=len(columns)))
    drawing = lay_out(columns, heights, edges)
    for (start, end), line in zip(edges, drawing.lines, strict=True):
        assert len(line) == columns[end] - columns[start] + 1
        assert (line[0], line[-1]) == (drawing.y[start], drawing.y[end])
    for column in set(columns):
        rows = sorted((drawing.y[box], heights[box]) for box in range(len(columns)) if columns[box] == column)
        for (upper, tall), (lower, small) in pairwise(rows):
            assert lower - upper >= (tall + small) / 2 + BOX_GAP - 1e-6 or lower - upper >= (tall + small) / 2
        assert rows[0][0] - rows[0][1] / 2 >= -1e-6
        assert rows[-1][0] + rows[-1][1] / 2 <= drawing.height + 1e-6


def test_a_thousand_long_lines_end() -> None:
    columns = list(range(200))
    edges = [(a, b) for a in range(0, 200, 2) for b in range(a + 1, 200, 7)]
    assert len(lay_out(columns, [20.0] * 200, edges).lines) == len(edges)


# ── other forms ────────────────────────────────────────────────────────────────────────────────────


def odd() -> Workflow:
    tasks = [Task('say "hi" \\ <x>', ("a",), (), ("f",)), Task("b\nc", ("b",), ("f",)), Task("d;{}|[]", ("b",), after=("b\nc",))]
    return Workflow(tasks, name='the "odd" \\ one')


def test_dot() -> None:
    text = dot.write(odd())
    assert 'label="say \\"hi\\" \\\\ <x>"' in text
    assert "n0 -> n1;" in text
    assert "n1 -> n2 [style=dashed];" in text
    assert text.startswith("digraph ")
    assert len(re.findall(r"(?<!\\)\"", text)) % 2 == 0


@pytest.mark.skipif(not shutil.which("dot"), reason="needs Graphviz")
def test_graphviz_reads_it() -> None:
    for workflow in (odd(), load(CORPUS / "pegasus5" / "montage-v3-79.yml")):
        result = subprocess.run(["dot", "-Tplain"], input=dot.write(workflow).encode(), capture_output=True, timeout=60, check=True)
        assert result.stdout.count(b"\nnode ") == len(workflow.tasks)


def test_mermaid() -> None:
    text = mermaid.write(odd())
    assert text.startswith('---\ntitle: "the \\"odd\\" \\\\ one: 3 tasks, 2 edges"\n---\nflowchart LR\n')
    assert '  n0["say #34;hi#34; #92; #60;x#62;"]' in text
    assert "  n0 --> n1\n" in text
    assert "  n1 -.-> n2\n" in text
    assert "  n1 -->|42| n2\n" in mermaid.write(load(CORPUS / "pegasus5" / "montage-v3-79.yml"), grouped=True)
