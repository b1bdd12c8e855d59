"""The standard libraries, whole: the functions in docs/reference/swift-library.md are there, and do what the languages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_swift_evaluate import evaluate

from amfs.errors import WorkflowError
from amfs.swift import mappers
from amfs.swift.builtins import Library
from amfs.swift.check.names import _NAME_OF_SIGNATURE
from amfs.swift.library_k import K
from amfs.swift.library_t import T
from amfs.swift.library_t.unix import UNIX
from amfs.swift.source import Source
from amfs.translate.swift import program_of

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "swift-library.md").read_text()


def words(text: str) -> set[str]:
    """All names between backticks, but those with signs in them."""
    return {word for quoted in re.findall(r"`([^`]*)`", text) for word in quoted.split() if re.fullmatch(r"\w+", word)}


def table(heading: str, number: int) -> list[list[str]]:
    """The rows of a table below a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)[number].splitlines()
    return [row.strip("|").split(" | ") for row in rows[2:]]


def names(library: Library) -> set[str]:
    found = {match[1] for one in library.functions if (match := _NAME_OF_SIGNATURE.match(one.signature))}
    return found | {name for _, name, _ in library.constants}


def test_the_page_names_all_of_swift_t_and_nothing_else() -> None:
    rows = table("Swift/T", 0)
    unix = words(next(row for row in rows if "unix" in row[0])[1]) - {"import"}
    listed = set().union(*(words(row[1]) for row in rows if "unix" not in row[0]))
    assert listed ^ names(T) == set()
    assert unix == set(re.findall(r"(\w+)\([^)]*\) \{", UNIX))
    refused = set().union(*(words(row[0].split(",")[0]) for row in table("Swift/T", 1)))
    assert refused ^ set(T.refused) == set()


def test_the_page_names_all_of_swift_k_and_nothing_else() -> None:
    listed = set().union(*(words(row[1]) for row in table("Swift/K", 0)))
    assert {name.lower() for name in listed ^ names(K)} - {name.lower() for name in listed & names(K)} == set()
    for row in table("Swift/K", 1):
        for mapper in words(row[0]):
            known = mappers.PARAMETERS[mappers.normal(mapper)]
            assert words(row[1]) == (known or {"exec"}), mapper


@pytest.mark.parametrize("name", sorted(T.refused))
def test_what_is_refused_says_what_to_do_instead(name: str) -> None:
    with pytest.raises(WorkflowError, match=f"{name} does not exist here: ") as caught:
        program_of(Source("s", f"{name}();"), "swift-t")
    assert "s:1:1: " in str(caught.value)


VALUES_T = {
    "toInt(3.9)": "3",
    "toFloat(3)": "3.0",
    'replaceAll("aXbXc", "X", "-")': "a-b-c",
    'replaceAll("aXbXc", "X", "-", 2, 5)': "aXb-c",
    "bag_size(b) + bagSize(b)": "4",
    'join(pick_regexp(".b.*", ["abc", "k32", "kb2", "bac"]), " ")': "abc kb2",
    'join(pick_integer_string(["a", "b", "c"], [2, 0]), " ")': "c a",
    "string_from_floats([1.5, 2.0])": "1.5,2.0",
    'join_args("-", "a", 1, 2.5)': "a-1-2.5",
    'dircat("a", "b/", "c")': "a/b/c",
    'hash("x") == hash("x")': "1",
    "xor(true, false), xor(true, true)": "1,0",
    "bool2string(true) + bool2string(false)": "truefalse",
    'string2bool("true")': "1",
    "join(range_step(1, 7, 3))": "1 4 7",
    "join(range_float(0.5, 2.5))": "0.5 1.5 2.5",
    "join(range_float_step(1.0, 0.0, -0.5))": "1.0 0.5 0.0",
    "ternary_integer(true, 1, 2), ternary_string(false, \"a\", \"b\")": "1,b",
    "INT_MAX()": "9223372036854775807",
    "isNaN(NaN)": "1",
    "blob_size(blob_null()), blob_size(blob_zeroes_float(3))": "0,24",
    'blob2string(string2blob("text"))': "text",
    "join(blob2floats(floats2blob([1.5, 2.5])))": "1.5 2.5",
    "blob_size(ints2blob([1, 2]))": "16",
    "matrix_from_blob_fortran(floats2blob([1.0, 2.0, 3.0, 4.0]), 2, 2)[0][1]": "3.0",
    'join(file_chunks(input("chunks.txt")), "|")': "a\nb|c",
    "CLOCK_FMT_ISO8601": "%Y-%m-%dT%H:%M:%S",
    'json_type("[1, 2.5, {\\"a\\": null}]", "2"), json_type("true")': "object,boolean",
    'json_get("{\\"a\\": [10, 20]}", "a,1"), json_get("{\\"a\\": [10, 20]}", "a"), json_get("null")': "20,[10, 20],null",
    'json_get_int("[7]", "0") + json_get_float("[0.5]", "0")': "7.5",
    'json_get_boolean("{\\"a\\": true}", "a")': "1",
    'json_array_size("[1, 2, 3]"), json_object_names("{\\"a\\": 1, \\"b\\": 2}")': "3,a,b",
    'json_arrayify("1"), json_objectify("\\"a\\":1")': '[1],{"a":1}',
    'json_encode_array(1, 2.5, "a\\"", true)': '[1, 2.5, "a\\"", true]',
    'json_encode_array_contents(1, "a")': '1, "a"',
    'json_encode_object(["x", "y"], 1, "a")': '{"x":1, "y":"a"}',
    'json_encode_object_contents(["x"], 1)': '"x":1',
    'json_encode_array_retype(["int", "string", "boolean", "json"], "3", 4, 1, "[5]")': '[3, "4", true, [5]]',
    'json_encode_object_format(["x", "y"], "%0.2f %s", 1.5, "a")': '{"x":1.50, "y":"a"}',
}


def test_functions_of_swift_t() -> None:
    program = "bag<int> b; b += 1; b += 2;\n" + "".join(f"trace({one});\n" for one in VALUES_T)
    found = evaluate(program, files={"chunks.txt": "# remark\na\nb # more\n\n----\nc\n----\n"})
    assert found.error == ""
    assert sorted(found.lines) == sorted("\n".join(f"trace: {text}" for text in VALUES_T.values()).splitlines())


def test_lines_of_functions_of_swift_t() -> None:
    found = evaluate('sleep_trace(0.1, 1, "a") => vector_print([1.5, 2.0]) => matrix_print_integer([[1, 2], [3, 4]], 2);')
    assert found.lines == ["AFTER", "trace: 1,a", "0: 1.5000", "1: 2.0000", "matrix rows: 2", "row 0:  1 2", "row 1:  3 4"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('json_get("{", "a")', "this is no JSON"),
        ('json_get("{}", "a")', "there is no 'a'"),
        ('json_get("[1]", "x")', "there is no 'x'"),
        ("json_encode_array(inf)", "cannot be written as JSON"),
        ('json_encode_array_retype(["int"], "x")', "cannot be made int"),
        ('json_encode_array_retype(["thing"], 1)', "is no type of JSON"),
        ('json_encode_object(["a"], 1, 2)', "1 names for 2 values"),
        ('pick_regexp("(", ["a"])', "no regular expression"),
        ('pick_integer_string(["a"], [1])', "no element 1"),
        ("range_float_step(0.0, 1.0, 0.0)", "has no end"),
        ("blob_zeroes_float(-1)", "the number is from 0"),
        ("matrix_from_blob_fortran(blob_null(), 1, 1)", "not 1 times 1 floats"),
    ],
)
def test_functions_of_swift_t_that_cannot(call: str, message: str) -> None:
    assert message in evaluate(f"x = {call}; wait (x) {{ trace(1); }}").error


VALUES_K = {
    "log(8.0, 2.0), log10(100.0), atan2(0.0, 1.0)": "3.0, 2.0, 0.0",
    "E > 2.7": "true",
    'parseInt("ff", 16)': "255",
    'strjoin(split("a,,b,c", ","), "|"), strjoin(split("a,b,c", ",", 2), "|")': "a|b|c, a|b,c",
    'strjoin(splitRe("a1b22c", "[0-9]+", 2), "|")': "a|b22c",
    'strjoin(findAllRe("xaby ab", "a(b)"), "|")': "ab|ab",
    'strjoin(findAllRe("a1 b", "([a-z])([0-9])?"), "|")': "a1|a|b|b",
    'strjoin(findAllRe("a1 b2", "[a-z]."), "|")': "a1|b2",
    'replaceAll("aaaa", "a", "b", 1, 3), replaceAllRe("a1a2", "([0-9])", "<$1>", 0, 2)': "abba, a<1>a2",
    'indexOf("abcabc", "bc", 2, 5), indexOf("abcabc", "bc", 2, 4), lastIndexOf("abcabc", "bc", 4, 4)': "4, -1, 4",
    'indexOf("abcabc", "c", 3, 6), lastIndexOf("abcabc", "b", -1), lastIndexOf("abcabc", "b", 3)': "5, 4, 1",
    "moment([1.0, 3.0], 2, 2.0)": "1.0",
    "randomInt(1, 2, 5, 5), randomInt(1, 2, 0, 99) == randomInt(1, 2, 0, 99)": "5, true",
    "randomFloat(1, 2, 3.0, 4.0) >= 3.0, randomGaussian(1, 2) != randomGaussian(1, 3)": "true, true",
    "number + 1, text": "8, text, more\n",
    "table[1].b": "x,y",
    "settings.a": "5",
    "read2": "2.5",
}


def test_functions_of_swift_k() -> None:
    program = (
        "type file; type row { int a; string b; }\n"
        'int number = read("number.txt"); string text = read("text.txt");\n'
        'row[] table = read("table.csv", "CSV", {"separator": ","}); row settings = read("settings.txt", format="FV");\n'
        'float read2 = readData2("single.txt");\n'
        'file written <"written.csv"> = write(table, "CSV", {"separator": ","}); file fv <"fv.txt"> = write(settings, "FV");\n'
        'assertEqual(1, 1); assertEqual("a", "a", "no"); assertAlmostEqual(1.0, 1.05, 0.1); assertLT(1, 2); assertLTE(2.0, 2.0);\n'
    ) + "".join(f"trace({one});\n" for one in VALUES_K)
    files = {
        "number.txt": "7\n", "text.txt": "text, more\n", "table.csv": 'a,b\n1,"q ""r"""\n2,"x,y"\n', "settings.txt": 'a = 5\nb = "x y"\n',
        "single.txt": "$ = 2.5\n",
    }  # fmt: skip
    found = evaluate(program, language="swift-k", files=files)
    assert found.error == ""
    wanted = "\n".join(f"SwiftScript trace: {text}" for text in VALUES_K.values())
    assert sorted(line for line in found.lines if line) == sorted(line for line in wanted.splitlines() if line)
    assert found.files["written.csv"] == files["table.csv"]
    assert found.files["fv.txt"] == files["settings.txt"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('int[] x = read("n")', "write format="),
        ('int x = read("n", "XML")', "the format is None"),
        ('row x = read("n", "CSV", {"separator": "::"})', "one character"),
        ('string x = replaceAll("a", "a", "b", 1, 3)', "no part of 1 characters"),
        ("int x = randomInt(1, 1, 2, 1)", "nothing lies between"),
        ("float[] a; float x = moment(a, 1, 0.0)", "moment of an empty array"),
        ("assertEqual(1, 2)", "assertion failed: 1 != 2"),
        ('assertLT(2, 1, "mine")', "mine: 2 >= 1"),
        ("assertAlmostEqual(1.0, 2.0)", "1.0 != 2.0"),
    ],
)
def test_functions_of_swift_k_that_cannot(call: str, message: str) -> None:
    found = evaluate(f"type row {{ int a; string b; }} {call};", language="swift-k", files={"n": "1\n"})
    assert message in found.error
