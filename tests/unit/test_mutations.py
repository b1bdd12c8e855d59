"""Damaged documents: bytes flipped, pieces removed, repeated or moved, types changed. Each ends in a workflow or in one-line faults."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from amfs.errors import AmfsError, WorkflowError
from amfs.translate import jsonl, tasklist
from amfs.translate.detect import load, read
from amfs.translate.synthetic import replay
from amfs.workflow.any_place import AnyPlace
from amfs.workflow.checks import check
from amfs.workflow.workflow import Workflow

CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"
LARGEST = 40_000
FILES = sorted(
    path for kind, pattern in (("dax", "*"), ("pegasus5", "*.yml"), ("wfformat", "*.json"))
    for path in (CORPUS / kind).glob(pattern) if path.stat().st_size < LARGEST
)  # fmt: skip
EACH = 24

MAKEFLOW = """\
# two ways to say hello
WORDS=hello world
export LANG=C
CATEGORY=small
CORES=2
MEMORY=100

greet.txt: /bin/echo
\tLOCAL /bin/echo $WORDS > greet.txt

.SIZE greet.txt 10
big small: greet.txt script->run.sh
\tsh run.sh greet.txt > big ; \\
\t  wc big > small
"""
LIST = "a -b cat -i in -stdout 'my out' -after b -scratch x -o x -runtime 3 -a in\nb -b wc -i 'my out' -stdout count -a -l 'my out'\n" * 3
LINES = '{"type":"file","name":"f","state":"Shared","size":7}\n{"type":"task","id":"a","argv":["p","f"],"inputs":["f"],"cores":2}\n' * 5
TEXTS = {"makeflow": MAKEFLOW, "task list": LIST, "JSON Lines": LINES, "commands": "echo 'a b' > x\ncat x | wc\nprog a b -if a -of b\n" * 4}

JUNK = [
    b"<", b">", b"&", b"&amp;", b"]]>", b"<!--", b"<job>", b"</job>", b'"', b"'", b"{", b"}", b"[", b"]", b":", b",", b"- ", b"*a", b"&a ",
    b"!!python/object:os.system ", b"<<: *x", b"\t", b"\n", b"\r\n", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"../../x",
    b"/etc/x", b"-1", b"1e999", b"NaN", b"99999999999999999999999", b"null", b"true", b"~", b"$(", b"${X}", b"\\", b"%", b"#",
    b"a" * 5000, b" " * 3000,
]  # fmt: skip


def flip(rng: random.Random, data: bytearray) -> None:
    any_byte = rng.random() < 0.3
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256) if any_byte else rng.choice(b"abcXYZ0159._-/")


def cut(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 10, 300))]


def end_early(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def repeat(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    piece = data[at : at + rng.choice((1, 30, 1000))]
    data[at:at] = piece * rng.randint(1, 5)


def move(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    length = rng.choice((5, 100, 1000))
    piece = data[at : at + length]
    del data[at : at + length]
    to = rng.randint(0, len(data))
    data[to:to] = piece


def insert(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(data))
        data[at:at] = rng.choice(JUNK)


def retype(rng: random.Random, data: bytearray) -> None:
    """A quoted word, a number or what stands after a colon becomes something else."""
    places = list(re.finditer(rb"\"[^\"\n]*\"|\b\d+(\.\d+)?\b|(?<=: )\S[^\n]*", bytes(data)))
    for place in sorted(rng.sample(places, min(len(places), rng.randint(1, 3))), key=lambda found: -found.start()):
        data[place.start() : place.end()] = rng.choice((b"[]", b"{}", b"null", b"-5", b"[1, 2]", b"{a: b}", b'"x"', b"3.5", b"true", b""))


def drop_lines(rng: random.Random, data: bytearray) -> None:
    lines = bytes(data).split(b"\n")
    for _ in range(min(len(lines) - 1, rng.randint(1, 4))):
        del lines[rng.randrange(len(lines))]
    data[:] = b"\n".join(lines)


def swap_lines(rng: random.Random, data: bytearray) -> None:
    lines = bytes(data).split(b"\n")
    one, two = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]
    data[:] = b"\n".join(lines)


def drop_elements(rng: random.Random, data: bytearray) -> None:
    """Whole elements of XML, or whole items of YAML and JSON lists, go or come twice."""
    places = list(re.finditer(rb"<\w+[^<>]*/>|<(\w+)[^<>]*>[^<>]*</\1>|^ *- [^\n]*\n|\{[^{}]*\},?", bytes(data), re.MULTILINE))
    for place in sorted(rng.sample(places, min(len(places), rng.randint(1, 3))), key=lambda found: -found.start()):
        data[place.start() : place.end()] = place[0] * rng.choice((0, 0, 2))


def change_values(rng: random.Random, data: bytearray) -> None:
    """Attributes and values in quotes are replaced by others of the same document, or by odd ones."""
    places = list(re.finditer(rb'(?<=")[^"\n<>&]*(?=")', bytes(data)))
    for place in sorted(rng.sample(places, min(len(places), rng.randint(1, 4))), key=lambda found: -found.start()):
        odd = rng.choice((b"", b"..", b"../a", b"/", b"-1", b"nan", b"1e400", b" ", b"a b"))
        other = rng.choice(places)[0] if rng.random() < 0.6 else odd
        data[place.start() : place.end()] = other


MUTATIONS: tuple[Callable[[random.Random, bytearray], None], ...] = (
    flip, cut, end_early, repeat, move, insert, retype, drop_lines, swap_lines, drop_elements, change_values,
)  # fmt: skip


class Named(io.BytesIO):
    """Bytes with the path of the file that they were, so that catalogs beside it are found."""

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(data)
        self.name = name


def survive(data: bytes, name: str, format: str) -> bool:
    """Whether a workflow came of it; everything else must be said in single lines."""
    try:
        workflow, faults, _ = read(Named(data, name), format=format)
    except AmfsError as error:
        assert str(error).count("\n") == 0
        return False
    for fault in [*faults, *workflow.remarks]:
        assert "\n" not in str(fault)
        assert len(str(fault)) < 50_000
    if faults:
        return False
    try:
        check(workflow, AnyPlace())
        check(replay(workflow, "/x").workflow, AnyPlace())
    except WorkflowError as error:
        assert all("\n" not in str(fault) for fault in error.faults)
        return False
    assert_round_trip(workflow)
    return True


def assert_round_trip(workflow: Workflow) -> None:
    """Workflows that were read can be written, and read again."""
    for module, name in ((tasklist, "tasklist"), (jsonl, "jsonl")):
        text = "".join(f"{line}\n" for line in module.write(workflow)).encode("utf-8", "surrogateescape")
        assert len(load(io.BytesIO(text), format=name).tasks) == len(workflow.tasks)


def mutated(data: bytes, seed: str) -> bytes:
    rng = random.Random(seed)
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if changed:
            rng.choice(MUTATIONS)(rng, changed)
    return bytes(changed)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_damaged_files(path: Path) -> None:
    data = path.read_bytes()
    for seed in range(EACH):
        survive(mutated(data, f"{path.name} {seed}"), str(path), "auto")


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("format", ["auto", "named"])
def test_damaged_texts(kind: str, format: str) -> None:
    named = {"makeflow": "makeflow", "task list": "tasklist", "JSON Lines": "jsonl", "commands": "usage"}[kind]
    for seed in range(EACH):
        survive(mutated(TEXTS[kind].encode(), f"{kind} {seed}"), "list", named if format == "named" else "auto")


def test_there_are_enough_of_them() -> None:
    assert len(FILES) * EACH + 2 * len(TEXTS) * EACH >= 500
    assert survive(FILES[0].read_bytes(), str(FILES[0]), "auto"), "what is not damaged is read"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_read_as_what_it_is_not(path: Path) -> None:
    for format in ("tasklist", "jsonl", "commands", "usage", "filelist", "dax", "pegasus", "wfformat", "makeflow"):
        survive(path.read_bytes(), str(path), format)
