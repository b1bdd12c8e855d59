"""Pegasus DAX: the reading of each construct, remarks, and refusals."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from amfs.errors import Fault
from amfs.translate.dax import DaxReader
from amfs.translate.detect import read
from amfs.translate.document import DEPTH_MAX, ELEMENT_BYTES_MAX
from amfs.workflow.workflow import Task


def dax(body: str, version: str = "3.6", source: str = "x.dax", size: int = 1 << 20) -> DaxReader:
    reader = DaxReader(source)
    root = f'<adag xmlns="http://pegasus.isi.edu/schema/DAX" version="{version}" name="test">'
    text = f'<?xml version="1.0"?>\n{root}\n{body}\n</adag>\n'.encode()
    for at in range(0, len(text), size):
        reader.feed(text[at : at + size])
    reader.finish()
    return reader


def good(body: str, version: str = "3.6", source: str = "x.dax") -> DaxReader:
    reader = dax(body, version, source)
    assert reader.all_faults() == []
    return reader


def only(body: str, version: str = "3.6") -> Task:
    (task,) = good(body, version).tasks
    return task


def faults(body: str) -> list[str]:
    return [f"{fault.line}: {fault.message}" for fault in dax(body).all_faults()]


def said(reader: DaxReader) -> str:
    return "\n".join(map(str, reader.remarks))


# ── jobs ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_with_everything() -> None:
    reader = good("""
      <job id="j1" namespace="ns" name="prog" version="1.0" runtime="2.5" cores="3">
        <argument>-i <file name="a"/> -n 3 -o<file name="d/b"/></argument>
        <profile namespace="env" key="X">1 2</profile>
        <profile namespace="dagman" key="RETRY"> 4 </profile>
        <profile namespace="dagman" key="priority">-2</profile>
        <profile namespace="pegasus" key="memory">512</profile>
        <profile namespace="globus" key="queue">fast</profile>
        <stdout name="log" link="output"/>
        <uses name="a" link="input" size="10"/>
        <uses name="d/b" link="output" transfer="true" register="false"/>
        <uses name="c" link="output" transfer="false"/>
        <uses name="log" link="output" transfer="false"/>
      </job>""")
    assert reader.name == "test"
    assert reader.sizes == {"a": 10}
    assert reader.tasks == [
        Task(
            "j1", ("prog", "-i", "a", "-n", "3", "-od/b"), ("a",), ("d/b", "c", "log"), stdout="log", env=("X=1 2",), cores=3,
            memory=512 << 20, retries=4, priority=-2, label="prog", keep=("d/b",), scratch=("c", "log"), runtime=2.5, line=4,
        )
    ]  # fmt: skip
    assert "the profile globus 'queue' has no meaning here" in said(reader)


@pytest.mark.parametrize(
    ("version", "argument", "words"),
    [
        ("3.6", "", []),
        ("3.6", "a\n   b\n\tc ", ["a", "b", "c"]),
        ("3.6", "-s 'a  b' \"c d\"", ["-s", "a  b", "c d"]),
        ("3.6", '-i<file name="x"/>,<file name="y"/>', ["-ix,y"]),
        ("3.6", '<file name="x"/><file name="y"/>', ["xy"]),
        ("2.1", '<filename file="x"/><filename file="y"/>', ["x", "y"]),
        ("2.1", '<filename file="x"/>\n  <filename file="y"/>', ["x", "y"]),
        ("2.1", '\n -p\n <filename file="x"/>\n *.fits | wc\n', ["-p", "x", "*.fits", "|", "wc"]),
        ("3.6", "{&quot;f&quot;:1} &lt;in&gt; &amp; <![CDATA[<raw>]]>", ["{f:1}", "<in>", "&", "<raw>"]),
        ("3.6", "a <!-- not said --> b", ["a", "b"]),
    ],
)
def test_arguments(version: str, argument: str, words: list[str]) -> None:
    assert list(only(f'<job id="a" name="p"><argument>{argument}</argument></job>', version).argv[1:]) == words


def test_a_quote_that_is_not_closed_is_told() -> None:
    reader = good("""<job id="a" name="p"><argument>it's so</argument></job>""")
    assert reader.tasks[0].argv == ("p", "it's", "so")
    assert "quote" in said(reader)


@pytest.mark.parametrize(
    ("attributes", "kept", "optional"),
    [
        ("", True, False),
        ('transfer="true"', True, False),
        ('transfer="false"', False, False),
        ('transfer="optional"', True, True),
        ('transfer="false" optional="true"', False, True),
        ('dontTransfer="true"', False, False),
        ('dontTransfer="false"', True, False),
        ('temporaryHint="true"', False, False),
        ('isTemporary="true"', False, False),
    ],
)
def test_what_becomes_of_an_output(attributes: str, kept: bool, optional: bool) -> None:
    task = only(f'<job id="a" name="p"><uses file="f" link="output" {attributes}/></job>', "2.1")
    assert (task.keep, task.scratch) == ((("f",), ()) if kept else ((), ("f",)))
    assert (task.argv[0] == "/bin/sh") == optional


@pytest.mark.parametrize("makes", [True, False])
def test_an_optional_output_that_is_not_made_is_empty(tmp_path: Path, makes: bool) -> None:
    name = "it's one"
    task = only(f'<job id="a" name="sh"><argument>-c "{"echo x &gt; made" if makes else "exit 0"}"</argument>'
                f'<uses name="{name}" link="output" optional="true"/></job>')  # fmt: skip
    assert subprocess.run(task.argv, cwd=tmp_path).returncode == 0
    assert (tmp_path / name).read_text() == ""
    failing = only('<job id="a" name="sh"><argument>-c "exit 3"</argument><uses name="f" link="checkpoint"/></job>')
    assert subprocess.run(failing.argv, cwd=tmp_path).returncode == 3


def test_programs_among_the_uses_are_no_data() -> None:
    uses = '<uses file="q" link="input" type="executable"/><uses name="r" link="input" executable="true"/>'
    reader = good(f'<job id="a" name="p">{uses}</job>')
    assert reader.tasks[0].inputs == ()
    assert "uses the program 'q'" in said(reader)


def test_a_file_that_is_named_as_input_and_as_output_is_not_changed_but_one_that_is_inout_is() -> None:
    reader = good('<job id="a" name="p"><uses name="f" link="input"/><uses name="f" link="output"/><uses name="g" link="inout"/></job>')
    assert (reader.tasks[0].inputs, reader.tasks[0].outputs) == (("f", "g"), ("g",))
    assert "taken as an input that stays as it is" in said(reader)


def test_catalogs_in_the_document() -> None:
    reader = good("""
      <file name="a"><metadata key="size">7</metadata><pfn url="http://far/a" site="web"/><pfn url="file:///data/a" site="local"/></file>
      <file name="b"><pfn url="gsiftp://far/b" site="web"/></file>
      <executable namespace="n" name="p" version="1" installed="true"><profile namespace="env" key="E">e</profile>
        <pfn url="file:///opt/p" site="local"><profile namespace="pegasus" key="cores">2</profile></pfn></executable>
      <executable name="helper" installed="false"><pfn url="file:///opt/helper" site="local"/></executable>
      <transformation namespace="n" name="p" version="1"><uses name="helper" executable="true"/>
        <uses name="table" executable="false"/></transformation>
      <job id="j" namespace="n" name="p" version="1"><uses name="a" link="input"/><uses name="b" link="input"/></job>
      <job id="k" name="p"/>""")
    first, second = reader.tasks
    assert (first.argv, first.env, first.cores) == (("/opt/p",), ("E=e",), 2)
    assert first.inputs == ("a", "b", "helper", "table")
    assert second.argv == ("p",), "another version is another program"
    assert reader.paths == {"a": "/data/a", "b": "gsiftp://far/b", "helper": "/opt/helper"}
    assert reader.sizes == {"a": 7}


def test_edges_stated_and_implied() -> None:
    reader = good("""
      <job id="a" name="p"><uses name="f" link="output"/></job>
      <job id="b" name="p"/>
      <job id="c" name="p"><uses name="f" link="input"/></job>
      <child ref="c"><parent ref="a"/><parent ref="b" edge-label="x"/><parent ref="b"/></child>
      <child ref="b"><parent ref="a"/></child>""")
    assert {task.id: task.after for task in reader.tasks} == {"a": (), "b": ("a",), "c": ("b",)}


def test_other_namespaces_and_no_namespace() -> None:
    for text in ('<p:adag xmlns:p="u"><p:job id="a" name="x"/></p:adag>', '<adag><job id="a" name="x"/></adag>'):
        reader = DaxReader("x")
        reader.feed(text.encode())
        reader.finish()
        assert [task.id for task in reader.tasks] == ["a"]


def test_what_has_no_meaning_is_told_once_a_kind_with_its_first_line() -> None:
    reader = good("""<metadata key="k">v</metadata>
      <invoke when="start">mail</invoke>
      <job id="a" name="p" level="3"><metadata key="k">v</metadata><invoke when="at_end">mail</invoke><strange/></job>
      <job id="b" name="p" level="2"><uses name="f" link="none"/></job>
      <novel/>""")
    assert sorted((remark.line, remark.message) for remark in reader.remarks) == [
        (3, "metadata have no meaning here (1 more like this)"),
        (4, "notifications have no meaning here: nobody is notified (1 more like this)"),
        (5, "<strange> is not known in <job>, and is ignored"),
        (5, "the attribute 'level' of a job has no meaning here (1 more like this)"),
        (6, "job b uses 'f' neither as input nor as output; that is ignored"),
        (7, "<novel> is not known in a workflow, and is ignored"),
    ]


def test_wild_numbers() -> None:
    reader = good("""<job id="a" name="p" runtime="-3" cores="zero"><uses name="f" link="output" size="-1"/>
      <uses name="g" link="output" size="much"/><uses name="h" link="output" size="1e3"/></job>
      <job id="b" name="p" runtime="nan"/>""")
    assert [task.runtime for task in reader.tasks] == [0.0, 0.0]
    assert reader.tasks[0].cores == 1
    assert reader.sizes == {"f": 0, "h": 1000}
    assert len(reader.remarks) == 4


# ── sub-workflows ──────────────────────────────────────────────────────────────────────────────────

INNER = """<adag name="inner"><job id="i1" name="p"><uses name="in" link="input"/><uses name="t" link="output" transfer="false"/></job>
<job id="i2" name="q"><argument><file name="t"/></argument><uses name="t" link="input"/><uses name="out" link="output"/></job></adag>"""


def test_a_sub_workflow_takes_the_place_of_its_job(tmp_path: Path) -> None:
    (tmp_path / "inner.dax").write_text(INNER)
    reader = good(
        """<job id="a" name="p"><uses name="in" link="output"/><uses name="t" link="output" transfer="false"/></job>
      <dax id="s" file="inner.dax"><argument>-v --force</argument><uses name="in" link="input"/><uses name="out" link="output"/></dax>
      <job id="z" name="p"/><child ref="s"><parent ref="a"/></child><child ref="z"><parent ref="s"/></child>""",
        source=str(tmp_path / "outer.dax"),
    )
    tasks = {task.id: task for task in reader.tasks}
    assert list(tasks) == ["a", "s.i1", "s.i2", "z"]
    assert tasks["s.i1"].inputs == ("in",)
    fresh = tasks["s.i1"].outputs[0]
    assert fresh != "t", "another file of that name is made outside"
    assert tasks["s.i2"].inputs == (fresh,)
    assert tasks["s.i2"].argv == ("q", fresh)
    assert tasks["z"].after == ("s.i2",)


def test_a_sub_workflow_that_is_not_there_yet_stays_a_job(tmp_path: Path) -> None:
    reader = good('<dax id="s" file="made-later.dax"/><dag id="d" file="x.dag"/>', source=str(tmp_path / "outer.dax"))
    assert [task.id for task in reader.tasks] == ["s", "d"]
    assert "is not there" in said(reader)


def test_a_sub_workflow_that_contains_itself(tmp_path: Path) -> None:
    text = '<adag><dax id="s" file="loop.dax"/></adag>'
    (tmp_path / "loop.dax").write_text(text)
    reader = DaxReader(str(tmp_path / "loop.dax"))
    reader.feed(text.encode())
    reader.finish()
    assert [fault.message for fault in reader.faults] == ["job s: sub-workflow loop.dax contains itself"]


# ── refused ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "0: there are no jobs in this workflow"),
        ('<job name="p"/>', "3: a <job> without an id"),
        ('<job id="a"/>', "3: job a: has no name"),
        ('<job id="a" name="p"/>\n<job id="a" name="p"/>', "4: job id 'a' is already taken (line 3)"),
        ('<job id="a" name="p"/><child ref="a"><parent ref="a"/></child>', "3: job a is said to depend on itself"),
        ('<job id="a" name="p"/><child ref="a"><parent ref="b"/></child>', "3: a dependency names job 'b', which there is not"),
        ('<job id="a" name="p"/><child ref="c"><parent ref="a"/></child>', "3: a dependency names job 'c', which there is not"),
        ('<job id="a" name="p"><uses link="input"/></job>', "3: job a: a <uses> without a name"),
        ('<job id="a" name="p"><uses name="f" link="sideways"/></job>', "link must be input"),
        ("<job", "not well-formed XML"),
        ("</adag><adag>", "not well-formed XML: junk after document element"),
        ('<job id="a" name="&nbsp;"/>', "not well-formed XML: undefined entity"),
        ("<a>" * (DEPTH_MAX + 1), f"3: elements lie deeper than {DEPTH_MAX} in each other"),
        ("\0", "not well-formed XML"),
    ],
)
def test_faults(body: str, says: str) -> None:
    told = faults(body)
    assert len(told) == 1
    assert says in told[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('<!DOCTYPE adag [<!ENTITY a "x"><!ENTITY b "&a;&a;&a;">]><adag><job id="&b;" name="p"/></adag>', "declares an entity (a)"),
        ('<!DOCTYPE adag [<!ENTITY x SYSTEM "file:///etc/passwd">]><adag><job id="a" name="&x;"/></adag>', "declares an entity (x)"),
        ('<!DOCTYPE adag [<!ENTITY % p SYSTEM "http://h/x.dtd"> %p;]><adag/>', "declares an entity (p)"),
        ('<!DOCTYPE adag SYSTEM "http://h/x.dtd"><adag>&x;</adag>', "uses an entity that it does not declare (&x;)"),
        ("<dag><job/></dag>", "its root is <dag>, not <adag>"),
        ('<?xml version="1.0" encoding="klingon"?><adag/>', "unknown encoding"),
    ],
)
def test_hostile_documents_are_refused_in_one_line(text: str, says: str) -> None:
    reader = DaxReader("x")
    reader.feed(text.encode())
    reader.finish()
    (fault,) = reader.all_faults()
    assert says in fault.message
    assert "\n" not in str(fault)


def test_one_huge_element_is_refused_before_it_is_read() -> None:
    reader = DaxReader("x")
    reader.feed(b'<adag><job id="a" name="')
    tracemalloc.start()
    try:
        for _ in range(200):
            if reader.dead:
                break
            reader.feed(b"x" * (1 << 20))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reader.dead
    assert [fault.message for fault in reader.faults] == [f"one element takes more than {ELEMENT_BYTES_MAX >> 20} MiB"]
    assert peak < 4 * ELEMENT_BYTES_MAX


def test_fifty_megabytes_of_nothing_take_no_memory() -> None:
    reader = DaxReader("x")
    reader.feed(b'<adag><job id="a" name="p"/>')
    blank = b" \n" * (1 << 19)
    tracemalloc.start()
    try:
        for _ in range(50):
            reader.feed(blank)
        reader.feed(b"</adag>")
        reader.finish()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [task.id for task in reader.tasks] == ["a"]
    assert peak < 8 << 20


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x"])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "w.dax"
    path.write_text(f'<adag><job id="a" name="p"><uses name="{name}" link="output"/></job></adag>')
    assert read(path).workflow.run_faults == [Fault(str(path), 1, f"job a: output {name!r} lies outside of the directory of the run")]


# ── size ───────────────────────────────────────────────────────────────────────────────────────────


def many(count: int) -> str:
    """Pairs of jobs joined by a file, and an edge that says so."""
    pairs = "".join(
        f'<job id="ID{i:07d}" name="one" namespace="n" version="1" runtime="1.5"><argument>-o <file name="f{i}"/></argument>'
        f'<uses name="f{i}" link="output" transfer="false" size="100"/></job>'
        f'<job id="IE{i:07d}" name="two"><argument>-i <file name="f{i}"/></argument><uses name="f{i}" link="input" size="100"/>'
        f'<uses name="g{i}" link="output"/></job>\n'
        for i in range(count // 2)
    )
    return pairs + "".join(f'<child ref="IE{i:07d}"><parent ref="ID{i:07d}"/></child>\n' for i in range(count // 2))


def bytes_a_task(count: int) -> float:
    """At the highest point, without the text."""
    text = f"<adag>{many(count)}</adag>".encode()
    reader = DaxReader("x")
    tracemalloc.start()
    try:
        for at in range(0, len(text), 1 << 20):
            reader.feed(text[at : at + (1 << 20)])
        del text
        reader.finish()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(reader.tasks) == count
    return peak / count


@pytest.mark.slow
def test_bytes_a_task_and_linear() -> None:
    few, more = bytes_a_task(2_000), bytes_a_task(8_000)
    assert more < 1024
    assert more < 1.25 * few


def test_pieces_of_any_size_give_the_same() -> None:
    whole = dax(many(10))
    assert dax(many(10), size=1).tasks == dax(many(10), size=7).tasks == whole.tasks


def test_translating_loads_nothing_of_the_cluster() -> None:
    code = "import sys, amfs.translate.dax; print([m for m in sys.modules if m.startswith(('amfs.net', 'amfs.node', 'zmq'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
