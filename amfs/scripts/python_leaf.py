"""Python code of scripts, evaluated in a process that stays. Also a program of its own, which imports nothing of amfs:
it evaluates what comes in by lines. Owns what calls with ``persistent`` leave for each other in this process."""

from __future__ import annotations

import base64
import json
import os
import sys
import traceback

_kept: dict[str, object] = {"__name__": "__main__"}


def evaluate(code: str, expression: str, persistent: bool) -> tuple[bool, str]:
    """(True, the value of the expression as text), or (False, why there is none)."""
    names = _kept if persistent else {"__name__": "__main__"}
    try:
        exec(compile(code, "<swift>", "exec"), names)
        value = eval(compile(expression, "<swift>", "eval"), names) if expression.strip() else ""
        return True, value if isinstance(value, str) else str(value)
    except BaseException as error:
        return False, "".join(traceback.format_exception_only(type(error), error)).strip()


def evaluate_in(directory: str, code: str, expression: str, persistent: bool) -> tuple[bool, str]:
    """The same in this directory, whose modules can be imported, as in a program that was started there with ``python -c``."""
    try:
        os.chdir(directory)
    except OSError as error:
        return False, f"{directory} on this node: {error.strerror}"
    if "" not in sys.path:
        sys.path.insert(0, "")
    return evaluate(code, expression, persistent)


def serve() -> None:
    """A line in, a line out. Output of the code goes to standard error's place, the terminal."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        answer = evaluate(*json.loads(base64.b64decode(line)))
        sys.stdout.flush()
        answers.write(base64.b64encode(json.dumps(answer).encode()).decode() + "\n")


if __name__ == "__main__":
    serve()
