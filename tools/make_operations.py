#!/usr/bin/env python3
"""Write docs/operations.md: every operation of the file system, from the vocabulary and from the tables of those that serve it.

``tools/make_operations.py`` writes; ``--check`` only says whether the page is what the code says (exit 1 if not). A unit test does the
latter. An operation that nobody serves is an error.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from amfs.vocabulary import fs_requests, fs_works, peer_requests  # noqa: E402  (the path has to be set first)

PAGE = ROOT / "docs" / "operations.md"

HEAD = """\
# Operations of the file system

Generated from `amfs/vocabulary/fs_requests.py`, `peer_requests.py`, `fs_works.py`, and from the tables of those that serve them, by
`tools/make_operations.py`; a test fails when this page is stale. To add an operation, add its class to the vocabulary and to the union at
the end of the file, and its code to the table that serves it (requests: `fs/vfs/requests.py`; calls: `Calls.serve`; works:
`node/file_backend.py` and `sim/file_backend.py`). One that the kernel asks for is also listed in `csrc/fuse/fuse.c`. Then
`make states`. *In C* says that threads of C answer it, too, when they can at once: of a mount
(`csrc/fuse`), or of the node that has the record (`csrc/metadata`); other questions go to the machine. How mounts, nodes and
clients talk is on a [page of its own](decisions/0005-ways-to-talk.md).
"""

#: The tables: title, sentence, module, union, its name in the code, where it is served.
PARTS = (
    ("Requests", "A node is asked by its own mounts, and by clients.", fs_requests, fs_requests.AnyRequest, "q", "fs/vfs"),
    ("Calls", "A node asks the one that has the record, or the content.", peer_requests, peer_requests.AnyPeerCall, "p", "fs/vfs"),
    ("Works", "The machine has the I/O of its own node do these.", fs_works, fs_works.AnyWork, "w", "node"),
)  # fmt: skip


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def slow_operations() -> set[str]:
    """What C calls the operations of mounts that the machine answers, as in BY_NAME."""
    return set(re.findall(r'\[FUSE_OP_\w+\] = "(\w+)"', (ROOT / "csrc" / "fuse" / "fuse_slow.c").read_text(encoding="utf-8")))


def direct_operations() -> set[str]:
    """Of the calls between nodes those that threads of C answer."""
    header = (ROOT / "csrc" / "metadata" / "peer_meta.h").read_text(encoding="utf-8")
    (body,) = re.findall(r"enum peer_meta_op \{(.*?)\};", header, re.DOTALL)
    return {name.lower() for name in re.findall(r"^ *PEER_META_(\w+)", body, re.MULTILINE)} - {"ops"}


def text_of(kind: Any) -> str:
    """A type, as short as it can be said."""
    text = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return re.sub(r"\b(?:[a-z_]+\.)+", "", text.replace("NoneType", "None")).replace("|", "\\|")


def servers(prefix: str, place: str) -> dict[str, list[str]]:
    """Operation -> the modules with an entry for it in a table of handlers."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "amfs" / place).glob("*.py")):
        for name in re.findall(rf"\b{prefix}\.([A-Z]\w*)(?:\.by\(|: )", path.read_text(encoding="utf-8")):
            if path.name not in found.setdefault(name, []):
                found[name].append(path.name)
    return found


def section(title: str, sentence: str, module: Any, union: Any, prefix: str, place: str) -> str:
    served = servers(prefix, place)
    if prefix == "w":
        served["RunsGiveWay"] = ["core.py"]  # by the worker, which is no I/O
    in_c = slow_operations() if prefix == "q" else direct_operations() if prefix == "p" else set()
    lines = [f"## {title}", "", f"{sentence} Defined in `vocabulary/{module.__name__.rsplit('.', 1)[1]}.py`.", ""]
    lines += ["| operation | arguments | answer | served by | in C |", "| --- | --- | --- | --- | --- |"]
    for kind in get_args(union):
        name = kind.__name__
        if name not in served:
            raise SystemExit(f"nobody serves {prefix}.{name}: no table in amfs/{place} has an entry for it")
        hints = get_type_hints(kind)
        arguments = ", ".join(f"{field}: {text_of(hints[field])}" for field in kind.__struct_fields__)
        answer = text_of(fs_requests.answer_type(kind))
        by = ", ".join(f"`{one}`" for one in served[name])
        lines.append(f"| `{name}` | {arguments} | {answer} | {by} | {'yes' if snake(name) in in_c else ''} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole of docs/operations.md."""
    return "\n".join([HEAD, *(section(*part) for part in PARTS)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is stale")
    if parser.parse_args().check:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
            return 0
        print(f"{PAGE.relative_to(ROOT)} is stale: run tools/make_operations.py", file=sys.stderr)
        return 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
