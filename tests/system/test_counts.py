"""The cost of a task and of a call on a mount, in counts: system calls, requests of the kernel, questions between nodes.

Counts repeat where times do not, so a step that becomes dearer is seen at once. The table is tests/data/counts.toml. After a change that is
meant to change it, ``PYTHONPATH=tests python tests/system/test_counts.py`` prints it anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import commands
import pytest
from fs_session import running

TABLE = Path(__file__).parent.parent / "data" / "counts.toml"
SLACK, ROUNDING = 1.15, 0.1  # by how much a count may differ: which node has a name is chance, and so is what goes in one batch
FEWER = 0.3  # how much less may be found: the least of several counts is compared
TWICE_MORE = 2
DIRECTORIES, FILES = 30, 5  # in each; many directories, since some have their home on the node of the mount
FEW, MANY = 200, 700  # tasks of two runs: the difference is free of what a start costs
SESSIONS: dict[str, tuple[int, tuple[str, ...]]] = {
    "one node": (1, ()),
    "4 nodes": (4, ()),
    "4 nodes, 2 replicas": (4, ("--replicas", "2")),
}

Counts = dict[str, float]


def create(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def write(path: str) -> None:
    with open(path, "xb", buffering=0) as file:
        file.write(b"x" * 1024)


def read(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        assert len(file.read(4096)) == 1024


def list_directory(path: str) -> None:
    assert len(os.listdir(os.path.dirname(path))) == FILES


def set_times(path: str) -> None:
    os.utime(path, (1, 1))


def rename(path: str) -> None:
    os.rename(path, path + "r")


def unlink_renamed(path: str) -> None:
    os.unlink(path + "r")


CALLS: dict[str, Callable[[str], object]] = {
    "create": create,
    "remove": os.unlink,
    "write 1 KiB": write,
    "stat": os.stat,
    "read 1 KiB": read,
    "list directory": list_directory,
    "set times": set_times,
    "rename": rename,
    "remove renamed": unlink_renamed,
    "mkdir": os.mkdir,
    "rmdir": os.rmdir,
}


def amfs(*arguments: str) -> str:
    done = commands.run(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def mounted(nodes: int, options: tuple[str, ...]) -> Iterator[Path]:
    with running(nodes, *options), tempfile.TemporaryDirectory(prefix="amfs-t-") as place:
        amfs("mount", place)
        try:
            yield Path(place)
        finally:
            amfs("umount", place)


def so_far() -> tuple[int, int, int]:
    """Requests of the kernel, those of them that the poll loop got, and questions that nodes have asked each other."""
    (session,) = json.loads(amfs("status", "--output", "json"))["sessions"]
    mounts = [mount for node in session["nodes"] for mount in node["mounts"]]
    return (
        sum(mount["requests"] for mount in mounts),
        sum(mount["slow"] for mount in mounts),
        sum(node["fs_asked"] for node in session["nodes"]),
    )


def counts_of_calls(session: str) -> dict[str, Counts]:
    table: dict[str, Counts] = {}
    with mounted(*SESSIONS[session]) as place:
        for number in range(DIRECTORIES):
            (place / str(number)).mkdir()
        paths = [f"{place}/{directory}/{number}" for directory in range(DIRECTORIES) for number in range(FILES)]
        before = so_far()
        for name, call in CALLS.items():
            for path in paths:
                call(path)
            after = so_far()
            requests, slow, asked = (round((new - old) / len(paths), 1) for new, old in zip(after, before, strict=True))
            table[name] = {"requests": requests, "by the loop": slow, "questions": asked}
            before = after
    return table


def system_calls(place: Path, line: str, tasks: int) -> int:
    list_of_tasks = place / "tasks"
    list_of_tasks.write_text("".join(line.format(number) + "\n" for number in range(tasks)))
    counted = place / "counted"
    command = ["strace", "-f", "-c", "-o", str(counted), sys.executable, "-m", "amfs", "run", "--local", str(list_of_tasks)]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return int(counted.read_text().split("\n")[-2].split()[3])


TASKS = {"no-op": "{0} -b /bin/true", "one file": "{0} -b /bin/true -stdout f{0}"}


def counts_of_tasks() -> dict[str, Counts]:
    """A task's own system calls are among them: those of /bin/true, which are the same each time."""
    with tempfile.TemporaryDirectory(prefix="amfs-t-") as place:
        return {
            name: {"system calls": round((system_calls(Path(place), line, MANY) - system_calls(Path(place), line, FEW)) / (MANY - FEW), 1)}
            for name, line in TASKS.items()
        }


def compare(measure: Callable[[], dict[str, Counts]], section: str) -> None:
    """Other programs on the machine, and the nodes on which names fall, only add: counts that are too high are taken again, and the least
    counts."""
    expected = tomllib.loads(TABLE.read_text())[section]
    found = measure()
    for _ in range(TWICE_MORE):
        if all(count <= expected[name][what] * SLACK + ROUNDING for name, counts in found.items() for what, count in counts.items()):
            break
        again = measure()
        found = {name: {what: min(count, again[name][what]) for what, count in counts.items()} for name, counts in found.items()}
    assert found.keys() == expected.keys()
    for name, counts in found.items():
        for what, count in counts.items():
            bound = expected[name][what]
            assert count <= bound * SLACK + ROUNDING, f"{section}: {name} needs {count} {what}, and needed {bound}"
            assert count >= bound / SLACK - FEWER, f"{section}: {name} needs {count} {what} only: write it down instead of {bound}"


def test_a_task_needs_no_more_system_calls() -> None:
    compare(counts_of_tasks, "tasks")


@pytest.mark.root
@pytest.mark.skipif(bool(os.environ.get("AMFS_TESTS_NO_FUSE")), reason="AMFS_TESTS_NO_FUSE is set")
@pytest.mark.parametrize("session", SESSIONS)
def test_a_call_on_a_mount_needs_no_more_steps(session: str) -> None:
    compare(lambda: counts_of_calls(session), session)


def main() -> None:
    print("# The cost of a task and a call on a mount, each, as counts: tests/system/test_counts.py compares them, and prints them anew.")
    for section, table in {"tasks": counts_of_tasks(), **{name: counts_of_calls(name) for name in SESSIONS}}.items():
        print(f'\n["{section}"]')
        width = max(map(len, table)) + 2
        for name, counts in table.items():
            quoted = f'"{name}"'.ljust(width)
            print(f"{quoted} = {{ " + ", ".join(f'"{what}" = {count}' for what, count in counts.items()) + " }")


if __name__ == "__main__":
    main()
