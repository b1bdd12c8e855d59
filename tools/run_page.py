"""Runs the examples of a page of the documentation, as a reader would type them: ``python tools/run_page.py PAGE --bin DIRECTORY``.

Owns which blocks of a page run and what is wanted of them. It needs only the standard library and knows nothing of amfs, so that it runs
beside an installed wheel, too, in an environment that has nothing else.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"^<!-- run(?: ([\w ]+))? -->\n+```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIMEOUT_S = 100


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """(wanted, language, text) of the blocks of a page that are marked ``<!-- run -->``. ``<!-- run fails -->`` wants a failure,
    ``<!-- run same -->`` the output that the page shows."""
    return [(m[1] or "", m[2], m[3]) for m in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def commands(text: str) -> str:
    """The shell script in a console block: text after a ``$ ``, and its continuation lines (after a backslash or in a here-document)."""
    lines: list[str] = []
    end_of_here = ""
    for line in text.splitlines():
        if end_of_here:
            lines.append(line)
            if line == end_of_here:
                end_of_here = ""
        elif line.startswith("$ "):
            lines.append(line[2:])
            if here := re.search(r"<<-?\s*'?(\w+)'?", line):
                end_of_here = here[1]
        elif lines and lines[-1].endswith("\\"):
            lines.append(line.removeprefix("> "))
    return "\n".join(lines) + "\n"


def shown_last(text: str) -> tuple[str, list[str]] | None:
    """The ``$ cat FILE`` that a console block ends in, and the lines that the page shows after it."""
    last = text[text.rfind("\n$ ") + 1 :].splitlines()
    return (last[0][2:], last[1:]) if last and re.fullmatch(r"\$ cat [\w./-]+", last[0]) else None


def run_block(wanted: str, language: str, text: str, *, python: str, work: Path, env: dict[str, str]) -> str:
    """The fault of a block's run, in words with all that it printed; empty if there is none."""
    bash = ["bash", "+e" if "fails" in wanted else "-e", "-c"]
    command = [python, "-c", text] if language == "python" else [*bash, commands(text)]

    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )

    result = run(command)
    story = f"{shlex.join(command)}\n{result.stdout}{result.stderr}"
    if result.returncode == 70:
        return f"an error of amfs itself: {story}"
    if (result.returncode == 0) == ("fails" in wanted):
        return f"it ended with {result.returncode}: {story}"
    if "same" in wanted:
        shown = [line for line in text.splitlines() if not line.startswith("$ ")]
        if (result.stdout + result.stderr).splitlines() != shown:
            return f"the page shows other output: {story}"
    if language == "console" and (last := shown_last(text)):
        printed = run(["bash", "-c", last[0]]).stdout.splitlines()
        if printed != last[1]:
            return f"after '{last[0]}' the page shows {last[1]}, not {printed}: {story}"
    return ""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Run the examples of a page, in one new directory.")
    parser.add_argument("page", type=Path)
    parser.add_argument("--bin", type=Path, required=True, metavar="DIRECTORY", help="where amfs and python are; the first of the PATH")
    parser.add_argument("--first", type=int, metavar="N", help="only the first N examples")
    options = parser.parse_args()
    where = options.bin.resolve()
    found = blocks(options.page)[: options.first]
    if not found:
        sys.exit(f"{options.page} has no example that is marked to be run")
    with tempfile.TemporaryDirectory(prefix="amfs-page-", dir="/tmp") as scratch:  # short: sockets lie in it
        work, sessions = Path(scratch) / "work", Path(scratch) / "run"
        work.mkdir()
        sessions.mkdir(mode=0o700)
        env = {**os.environ, "PATH": f"{where}{os.pathsep}{os.environ.get('PATH', os.defpath)}", "AMFS_RUN_DIR": str(sessions)}
        env.pop("PYTHONPATH", None)
        for number, (wanted, language, text) in enumerate(found, 1):
            wrong = run_block(wanted, language, text, python=str(where / "python"), work=work, env=env)
            if wrong:
                sys.exit(f"{options.page}, example {number}: {wrong}")
    print(f"{options.page.name}: {len(found)} examples ran")


if __name__ == "__main__":
    main()
