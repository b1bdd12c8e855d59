"""The functions and mappers of both Swift libraries, each by itself, over a small world of files."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amfs.swift import mappers
from amfs.swift.builtins import Failure, Library, Location
from amfs.swift.formats import format_k, format_t, parse_int, text_k, text_t
from amfs.swift.library_k import K
from amfs.swift.library_k.data import written
from amfs.swift.library_t import T
from amfs.swift.mappers.rules import joined_path
from amfs.swift.names import directory_of, joined, last_part, split_extension
from amfs.swift.patterns import parse_path
from amfs.swift.requests import (
    Arguments,
    Clock,
    Environment,
    Execute,
    Executed,
    FileValue,
    Glob,
    Locate,
    Nodes,
    Place,
    Print,
    Random,
    ReadFile,
    Stat,
    Status,
    WriteFile,
)
from amfs.swift.types import BOOLEAN, FILE, FLOAT, INT, STRING, Array, Struct, Subtype, Type


class World:
    def __init__(self, **files: str) -> None:
        self.files = {name: text.encode() for name, text in files.items()}
        self.printed = ""
        self.places: dict[str, int] = {}

    def run(self, steps: Generator[Any, Any, Any]) -> Any:
        try:
            request = next(steps)
            while True:
                request = steps.send(self.answer(request))
        except StopIteration as end:
            return end.value

    def answer(self, request: Any) -> Any:
        match request:
            case ReadFile(name):
                return self.files[name]
            case WriteFile(name, data):
                self.files[name] = data
            case Stat(name):
                return Status(len(self.files[name]), 1.5, "file") if name in self.files else None
            case Glob(pattern):
                return sorted(name for name in self.files if fnmatch.fnmatchcase(name, pattern))
            case Print(text, _):
                self.printed += text
            case Environment(name):
                return {"HOME": "/home"}.get(name)
            case Arguments():
                return ["one"], {"n": "5"}
            case Nodes():
                return ["a", "a", "b"]
            case Place(name, rank):
                self.places[name] = rank
            case Locate(name):
                return [self.places[name]] if name in self.places else []
            case Random():
                return 0.999
            case Clock():
                return 12.5
            case Execute(words, _):
                return Executed(b"".join(b"[%d] %s\n" % (i, word.encode()) for i, word in enumerate(words)), b"", 0)
        return None


def call(library: Library, name: str, *arguments: Any, world: World | None = None, overload: int = 0, **named: Any) -> Any:
    """The given overload of a function."""
    fitting = [declared for declared in library.functions if re.search(rf"(?<!\w){name}\(", declared.signature)]
    declared = fitting[overload]
    result = declared.call(*arguments, **named)
    return (world or World()).run(result) if declared.asks else result


# ── values and formats ─────────────────────────────────────────────────────────────────────────────


def test_values_as_text() -> None:
    assert [text_t(value) for value in (1, 1.0, True, "a", math.inf, math.nan, 1e20, b"x", FileValue("f"))] == [
        "1", "1.0", "1", "a", "Inf", "NaN", "1e+20", "x", "f"
    ]  # fmt: skip
    assert [text_k(value) for value in (1, 1.0, True, 1e7, 123456789.5, 1e-4, 0.001, -math.inf, 1.25e-5)] == [
        "1", "1.0", "true", "1.0E7", "1.234567895E8", "1.0E-4", "0.001", "-Infinity", "1.25E-5"
    ]  # fmt: skip


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_read_back(value: float) -> None:
    assert float(text_t(value)) == value
    assert float(text_k(value)) == value


@pytest.mark.parametrize(
    ("format", "values", "text"),
    [
        ("%5d|%-5d|%05d", [42, 42, 42], "   42|42   |00042"),
        ("%+d % d", [1, 2], "+1  2"),
        ("%x %X %o %#x %u", [255, 255, 8, 255, -1], "ff FF 10 0xff 18446744073709551615"),
        ("%.3f %e %g %5.1f", [1.5, 12345.678, 0.0001, 2.25], "1.500 1.234568e+04 0.0001   2.2"),
        ("%s %5s %-5s| %.2s", ["a", "b", "c", "long"], "a     b c    | lo"),
        ("%c%c %b", [72, 105, 5], "Hi 101"),
        ("%*d %2$s %1$s", [3, 7], "  7 7 3"),
        ("%ld %lld %hd %%", [1, 2, 3], "1 2 3 %"),
        ("%f %s", [math.inf, True], "Inf 1"),
        ("%d", ["0x10"], "16"),
    ],
)
def test_formats_of_tcl(format: str, values: list[Any], text: str) -> None:
    assert format_t(format, values) == text


@pytest.mark.parametrize(
    ("format", "values"), [("%d", []), ("%d", ["x"]), ("%d", [1.5]), ("%", [1]), ("%y", [1]), ("%9999999999d", [1]), ("%3$d", [1])]
)
def test_formats_that_do_not_fit(format: str, values: list[Any]) -> None:
    with pytest.raises(Failure):
        format_t(format, values)


@given(
    st.text(alphabet="%dsifbqpMk$*.-+ 0123456789xQ", max_size=12),
    st.lists(st.one_of(st.integers(), st.floats(), st.text(max_size=3)), max_size=3),
)
def test_no_format_raises_anything_else(format: str, values: list[Any]) -> None:
    for function in (format_t, format_k):
        try:
            assert isinstance(function(format, values), str)
        except Failure:
            continue


def test_formats_of_swift_k() -> None:
    array = {0: 1, 1: 2}
    shown = format_k("%s %i %f %b %p %q %M %k%%|%5.1f", ["a", 1, 2.5, True, array, array, FileValue("f"), 9, 1.25])
    assert shown == "a 1 2.500000 true {0=1, 1=2} [1,2] f %|  1.2"
    wrong: list[tuple[str, list[Any]]] = [("%s", [1]), ("%i", [1.5]), ("%b", [1]), ("%q", [1]), ("%M", ["f"])]
    for format, values in (*wrong, ("%s", []), ("%s", ["a", "b"]), ("%z", [1])):
        with pytest.raises(Failure):
            format_k(format, values)


def test_whole_numbers() -> None:
    assert [parse_int(text) for text in (" 12 ", "-0x1F", "0o17", "007", "+5")] == [12, -31, 15, 7, 5]
    for text in ("", "1.5", "12a", "9223372036854775808", "1" * 5000, "--1"):
        with pytest.raises(Failure):
            parse_int(text)


def test_names_of_files() -> None:
    assert [directory_of(name) for name in ("a/b", "a", "/a", "/", "a/b/", "", "a//b")] == ["a", ".", "/", "/", "a", ".", "a"]
    assert [last_part(name) for name in ("a/b", "a", "/", "a/b/", "")] == ["b", "a", "/", "b", ""]
    assert [split_extension(name) for name in ("a.b", "a.d/b", ".rc", "a.tar.gz", "d/.x.y")] == [
        ("a", ".b"), ("a.d/b", ""), (".rc", ""), ("a.tar", ".gz"), ("d/.x", ".y")
    ]  # fmt: skip
    assert [joined(*pair) for pair in (("a", "b"), ("a/", "/b"), ("", "b"), ("/", "b"))] == ["a/b", "a/b", "b", "/b"]


# ── Swift/T ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("substring", ("hello", 1, 3), "ell"),
        ("find", ("hello", "l", 3, -1), 3),
        ("find", ("hello", "o", 0, 3), -1),
        ("count", ("banana", "an", 0, -1), 2),
        ("replace", ("aXbX", "X", "-", 2), "aXb-"),
        ("replace_all", ("aXbX", "X", "-", 0), "a-b-"),
        ("split", ("a b c", " "), {0: "a", 1: "b", 2: "c"}),
        ("split", ("", " "), {}),
        ("join", ({0: 1, 1: 2.5}, ","), "1,2.5"),
        ("round", (-2.5,), -3.0),
        ("floor", (math.inf,), math.inf),
        ("log", (0.0,), -math.inf),
        ("exp", (1e6,), math.inf),
        ("pow_integer", (2, 62), 2**62),
        ("pow_integer", (-1, 1001), -1),
        ("pow_integer", (0, 0), 1),
        ("pow_integer", (0, 7), 0),
        ("pow_integer", (1, 10**12), 1),
        ("stats", ({0: 2.0, 1: 4.0},), (3.0, 1.0)),
        ("range", (1, 10, 3), {0: 1, 1: 4, 2: 7, 3: 10}),
        ("range", (3, 1, -1), {0: 3, 1: 2, 2: 1}),
        ("keys_string", ({"a": 1},), {0: "a"}),
        ("location", (3, "SOFT", "NODE"), Location(3, False, True)),
        ("locationFromRank", (1,), Location(1)),
        ("basename_string", ("a/b.c",), "b.c"),
        ("floats_from_blob", (b"\0" * 8,), {0: 0.0}),
        ("makeVoid", (), None),
    ],
)
def test_functions_of_swift_t(name: str, arguments: tuple[Any, ...], result: Any) -> None:
    assert call(T, name, *arguments) == result


def test_square_root_of_a_negative_number_is_none() -> None:
    assert math.isnan(call(T, "sqrt", -1.0))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("substring", ("a", -1, 2)),
        ("pow_integer", (2, 63)),
        ("pow_integer", (3, 10**9)),
        ("pow_integer", (2, -1)),
        ("avg", ({},)),
        ("range", (1, 2, 0)),
        ("location", (0, "FIRM", "RANK")),
        ("assert", (False, "why")),
        ("assertEqual", (1, "2", "")),
        ("argv", ("absent",)),
        ("argp", (2,)),
        ("argv_accept", ("m",)),
        ("randint", (3, 3)),
        ("set_rank", ("f", 3)),
        ("hostmap_one", ("z",)),
        ("input", ("absent", FileValue("x"))),
        ("system", ({},)),
    ],
)
def test_functions_of_swift_t_that_cannot(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(Failure):
        call(T, name, *arguments)


def test_functions_of_swift_t_that_ask() -> None:
    world = World(f="# c\n a # b\n\nb\n")
    assert call(T, "file_lines", FileValue("f"), "#", world=world) == {0: "a", 1: "b"}
    assert call(T, "write", "text", o=FileValue("g"), world=world) == FileValue("g")
    assert world.files["g"] == b"text"
    assert call(T, "glob", "*", world=world) == {0: FileValue("f"), 1: FileValue("g")}
    assert call(T, "argv", "n", world=world) == "5"
    assert call(T, "randint", 0, 10, world=world) == 9
    assert call(T, "system1", "x", world=world) == ("[0] sh\n[1] -c\n[2] x", 0)
    call(T, "trace", 1, 2.5, {0: True}, world=world)
    call(T, "printf", "%d", 1, world=world)
    assert world.printed == "trace: 1,2.5,{0:1}\n1\n"


def test_parts_of_statistics_combine() -> None:
    parts = {0: call(T, "statagg", {0: 1, 1: 2, 2: 3}), 1: call(T, "statagg", {0: 10})}
    n, mean, std = call(T, "stat_combine", parts)
    assert (n, mean) == (4, 4.0)
    assert std == pytest.approx(call(T, "std", dict(enumerate([1, 2, 3, 10]))))


def test_a_file_has_the_rank_it_was_given_or_one_by_its_name() -> None:
    world = World()
    call(T, "set_rank", "f", 2, world=world)
    assert call(T, "get_rank", "f", world=world) == 2
    ranks = [call(T, "get_rank", f"file{i}", world=world) for i in range(300)]
    assert all(60 < ranks.count(rank) < 140 for rank in range(3))
    assert call(T, "hostmap_lookup", "a", world=world) == {0: 0, 1: 1}


@pytest.mark.parametrize("library", [T, K], ids=["t", "k"])
def test_each_signature_is_there_once(library: Library) -> None:
    signatures = [re.sub(r"\w+(?= *[,)=\[]|$)", "", declared.signature) for declared in library.functions]
    names = [re.findall(r"(\w+)\(", declared.signature)[-1] for declared in library.functions]
    pairs = list(zip(names, [re.sub(r"=[^,)]*", "", s) for s in signatures], strict=True))
    assert sorted(pair for pair in set(pairs) if pairs.count(pair) > 1) == []


# ── Swift/K ────────────────────────────────────────────────────────────────────────────────────────

ROW = Struct("row", (("x", INT), ("name", STRING)))


@pytest.mark.parametrize(
    ("text", "type", "value"),
    [
        ("42\n", INT, 42),
        ("1.5", FLOAT, 1.5),
        ("true\n", BOOLEAN, True),
        ("a b\nc\n", STRING, "a b\nc"),
        ("1\n2\n", Array(INT), {0: 1, 1: 2}),
        ("a\n\nb\n", Array(STRING), {0: "a", 1: "", 2: "b"}),
        ("name x\na 1\nb 2\n", Array(ROW), {0: {"x": 1, "name": "a"}, 1: {"x": 2, "name": "b"}}),
        ("x name\n1 a\n", ROW, {"x": 1, "name": "a"}),
    ],
)
def test_read_data(text: str, type: Type, value: Any) -> None:
    world = World(f=text)
    assert call(K, "readData", "f", o=type, world=world) == value
    assert call(K, "readData", FileValue("f"), o=type, world=world) == value


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("x\n", INT),
        ("", Array(ROW)),
        ("x\n1\n", Array(ROW)),
        ("x name other\n", ROW),
        ("x name\n1\n", ROW),
        ("maybe", BOOLEAN),
        ("1\n", Array(Array(INT))),
    ],
)
def test_data_that_cannot_be_read(text: str, type: Type) -> None:
    with pytest.raises(Failure):
        call(K, "readData", "f", o=type, world=World(f=text))


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.lists(st.integers(0, 9)).map(lambda items: dict(enumerate(items)))))
def test_written_data_is_read_back(value: Any) -> None:
    type: Type = Array(INT) if isinstance(value, dict) else INT
    assert call(K, "readData", "f", o=type, world=World(f=written(value))) == value


def test_written_structs_are_read_back() -> None:
    rows = {0: {"x": 1, "name": "a"}, 1: {"x": 2, "name": "b"}}
    assert call(K, "readData", "f", o=Array(ROW), world=World(f=written(rows))) == rows
    assert call(K, "readData", "f", o=ROW, world=World(f=written(rows[0]))) == rows[0]
    with pytest.raises(Failure):
        written({0: {0: 1}, 1: {0: 2}})


def test_read_structured() -> None:
    whole = Struct("whole", (("a", INT), ("b", ROW), ("c", Array(FLOAT))))
    world = World(f='a = 1\n# remark\nb.name = "x y"\nb.x=2\nc[1] = 2.5\nc[0] = 1.5\n')
    assert call(K, "readStructured", "f", o=whole, world=world) == {"a": 1, "b": {"name": "x y", "x": 2}, "c": {0: 1.5, 1: 2.5}}
    for text in ("a", "d = 1", "a = x", "a = 1\na = 2", "a = 1\na.b = 2", "c[x] = 1"):
        with pytest.raises(Failure):
            call(K, "readStructured", "f", o=whole, world=World(f=text))


def test_strings_of_swift_k() -> None:
    assert call(K, "regexp", "abcdefghi", "c(def)g", "<\\1$1>") == "ab<defdef>hi"
    assert call(K, "strcut", "abcdef", "b(c.)e") == "cd"
    assert call(K, "strsplit", "a1b22c3", "[0-9]+") == {0: "a", 1: "b", 2: "c"}
    assert call(K, "toInt", "3.7") == 3
    assert call(K, "pad", 4, 7) == "0007"
    assert call(K, "filename", {0: FileValue("a"), 1: {"x": FileValue("b")}}) == "a b"
    for name, arguments in (("regexp", ("a", "(", "x")), ("regexp", ("a", "a", "\\1")), ("strcut", ("a", "b")), ("toInt", ("x",))):
        with pytest.raises(Failure):
            call(K, name, *arguments)


# ── mappers ────────────────────────────────────────────────────────────────────────────────────────

MARKER = Subtype("image", FILE)
PAIR = Struct("pair", (("left", MARKER), ("right", MARKER)))


def mapped(mapper: str, type: Type, is_input: bool, world: World | None = None, **parameters: Any) -> Any:
    found = mappers.find(mapper)
    assert found
    return (world or World()).run(found(parameters, type, "v", is_input))


def test_the_rule_of_the_simple_mapper() -> None:
    out = mapped("simple_mapper", Array(MARKER), False, location="d", prefix="f", suffix=".txt")
    assert out.name_of((3,)) == "d/f0003.txt"
    out = mapped("SimpleMapper", PAIR, False, prefix="f.", padding=2, separator="-")
    assert [out.name_of(path) for path in (("left",), ("a", 1), ("a", "b", 12))] == ["f.left", "f.a-01", "f.a.b-12"]
    assert joined_path((), 4, "_") == ""


@given(
    st.lists(st.tuples(st.integers(0, 99999), st.integers(0, 9), st.sampled_from(["left", "right"])), unique=True, max_size=5),
    st.sampled_from(["", "p", "p[", "d*/x"]),
    st.sampled_from(["", ".txt", "."]),
)
def test_the_simple_mapper_finds_what_it_has_named(paths: list[tuple[int, int, str]], prefix: str, suffix: str) -> None:
    type = Array(Array(PAIR))
    out = mapped("simple_mapper", type, False, location="dir", prefix=prefix, suffix=suffix)
    world = World(**{out.name_of(path): "" for path in paths}, **{"dir/other": ""})
    found = mapped("simple_mapper", type, True, world, location="dir", prefix=prefix, suffix=suffix)
    assert sorted(found.existing) == sorted((path, out.name_of(path)) for path in paths)


def test_mappers_that_list_files() -> None:
    world = World(**{"d/b.in": "", "d/a.in": "", "d/c.out": "", "list": "left|right\n# \n", "table": "x,y\nz\n"})
    assert mapped("filesys_mapper", Array(MARKER), True, world, location="d", suffix=".in").existing == [((0,), "d/a.in"), ((1,), "d/b.in")]
    assert mapped("filesys_mapper", Array(MARKER), True, world, pattern="d/*.out").existing == [((0,), "d/c.out")]
    for mapper in ("filesys_mapper", "simple_mapper"):  # they would find nothing
        with pytest.raises(Failure, match="location 's3://b/d' is a URL"):
            mapped(mapper, Array(MARKER), True, world, location="s3://b/d")
    assert mapped("simple_mapper", MARKER, True, world, location="s3://b", prefix="f").existing == [((), "s3://b/f")]
    fixed = mapped("fixed_array_mapper", Array(MARKER), True, files="a, b:c  d")
    assert [name for _, name in fixed.existing] == ["a", "b", "c", "d"]
    assert mapped("array_mapper", Array(MARKER), False, files={0: "x", 1: "y"}).name_of((1,)) == "y"
    with pytest.raises(Failure):
        fixed.name_of((4,))
    found = mapped("csv_mapper", Array(PAIR), True, world, file="table", header="false")
    assert found.existing == [((0, "left"), "x"), ((0, "right"), "y"), ((1, "left"), "z")]
    assert mapped("csv_mapper", Array(PAIR), True, world, file=FileValue("list"), hdelim="|", skip=0).existing == [((0, "left"), "#")]


def test_mappers_by_regular_expressions() -> None:
    assert mapped("regexp_mapper", MARKER, False, source="a.gif", match="(.*)gif", transform=r"\1jpg").name_of(()) == "a.jpg"
    source = {0: FileValue("a.in"), 1: FileValue("b.in")}
    out = mapped("structured_regexp_mapper", Array(MARKER), False, source=source, match="(.*)in", transform=r"o/\1out")
    assert out.name_of((1,)) == "o/b.out"
    with pytest.raises(Failure):
        mapped("regexp_mapper", MARKER, False, source="a.gif", match="x")


def test_the_mapper_that_asks_a_program() -> None:
    found = mapped("ext", Array(MARKER), True, exec="prog", n=3)
    assert found.existing == list(zip([(n,) for n in range(6)], ["sh", "-c", '"$0" "$@"', "prog", "-n", "3"], strict=True))


def test_names_that_nobody_gave_differ() -> None:
    out = mapped("concurrent_mapper", Array(PAIR), False, prefix="p", suffix=".x")
    assert out.name_of((1, "left")) == "_concurrent/p-v-0001_left.x"


@pytest.mark.parametrize(
    ("mapper", "type", "parameters"),
    [
        ("single_file_mapper", Array(MARKER), {"file": "x"}),
        ("single_file_mapper", MARKER, {}),
        ("fixed_array_mapper", MARKER, {"files": "x"}),
        ("fixed_array_mapper", Array(MARKER), {"file": "x"}),
        ("simple_mapper", Array(MARKER), {"padding": "many"}),
        ("csv_mapper", Array(MARKER), {"file": "x"}),
        ("ext", MARKER, {}),
    ],
)
def test_parameters_that_do_not_fit(mapper: str, type: Type, parameters: dict[str, Any]) -> None:
    with pytest.raises(Failure, match=mapper):
        mapped(mapper, type, True, **parameters)


def test_paths() -> None:
    assert parse_path('[2].field["key"][word]') == (2, "field", "key", "word")
    assert parse_path("a.b[1]") == ("a", "b", 1)
    assert [parse_path(text) for text in ("a b", "[", "1x", "]")] == [None] * 4
