"""The world outside: command line, environment, clock, programs that run at once, Python."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

from amfs.swift.builtins import Failure
from amfs.swift.formats import text_t
from amfs.swift.leaf_python import worker
from amfs.swift.library_t.checks import trace
from amfs.swift.library_t.registry import T
from amfs.swift.requests import Arguments, CallPython, Clock, Environment, Execute, Executed, Pause, Print, Request

_RANKS = re.compile(r"(\w+)_RANKS")

T.constants += [
    ("string", "CLOCK_FMT_ISO8601", "%Y-%m-%dT%H:%M:%S"),
    ("string", "CLOCK_FMT_RFC3339", "%Y-%m-%d %H:%M:%S"),
    ("int", "EXIT_SUCCESS", 0),
    ("int", "EXIT_TIMEOUT", 124),
    ("int", "EXIT_NOTFOUND", 127),
]

# ── command line ───────────────────────────────────────────────────────────────────────────────────


@T.asking("(string o) argv(string key)")
def argv(key: str) -> Generator[Request, Any, str]:
    _, named = yield Arguments()
    if key not in named:
        raise Failure(f"argument -{key} is missing: add -{key}=VALUE after --")
    return str(named[key])


@T.asking("(string o) argv(string key, int|float|string|boolean default_value)")
def argv_or(key: str, default: Any) -> Generator[Request, Any, str]:
    _, named = yield Arguments()
    return str(named[key]) if key in named else text_t(default)


@T.asking("(boolean o) argv_contains(string key)")
def argv_contains(key: str) -> Generator[Request, Any, bool]:
    return key in (yield Arguments())[1]


@T.asking("(void v) argv_accept(string... keys)")
def argv_accept(*keys: str) -> Generator[Request, Any, None]:
    _check_arguments((yield Arguments())[1], keys)


@T.asking("(void v) argv_accept(string keys[])")
def argv_accept_array(keys: dict[int, str]) -> Generator[Request, Any, None]:
    _check_arguments((yield Arguments())[1], tuple(keys.values()))


def _check_arguments(named: dict[str, str], keys: tuple[str, ...]) -> None:
    for key in named:
        if key not in keys:
            accepted = ", ".join(f"-{one}" for one in keys) or "none"
            raise Failure(f"the program does not know the argument -{key}; it accepts {accepted}")


@T.asking("(int o) argc()")
def argc() -> Generator[Request, Any, int]:
    return len((yield Arguments())[0])


@T.asking("(string o) argp(int i)")
def argp(i: int) -> Generator[Request, Any, str]:
    """The i-th argument that is no -name=value, from 1; 0 is the program."""
    plain, _ = yield Arguments()
    if not 0 <= i <= len(plain):
        raise Failure(f"argument {i} is missing: there are {len(plain)}")
    return str(plain[i - 1]) if i else "swift"


@T.asking("(string o) argp(int i, int|float|string|boolean default_value)")
def argp_or(i: int, default: Any) -> Generator[Request, Any, str]:
    plain, _ = yield Arguments()
    return str(plain[i - 1]) if 1 <= i <= len(plain) else text_t(default)


@T.asking("(string o) args()")
def args() -> Generator[Request, Any, str]:
    plain, named = yield Arguments()
    return " ".join([*plain, *(f"-{key}={value}" for key, value in named.items())])


# ── environment and clock ──────────────────────────────────────────────────────────────────────────


@T.asking('(string o) getenv(string key, string default_value="")')
def getenv(key: str, default: str) -> Generator[Request, Any, str]:
    """Turbine gives programs the ranks of the workers of each kind; those of amfs have numbers from 0 on."""
    value = yield Environment(key)
    if value is None and (ranks := _RANKS.fullmatch(key)):
        workers = yield Environment(f"TURBINE_{ranks[1]}_WORKERS")
        if workers is None and ranks[1] == "RESIDENT_WORK":
            workers = "1"
        if workers is not None and workers.isdecimal():
            value = ",".join(str(rank) for rank in range(int(workers)))
    return default if value is None else str(value)


@T.asking("(float o) clock()")
def clock() -> Generator[Request, Any, float]:
    return float((yield Clock()))


@T.asking("(int o) clock_seconds()")
def clock_seconds() -> Generator[Request, Any, int]:
    return int((yield Clock()))


@T.asking("(void v) sleep(float seconds)")
def sleep(seconds: float) -> Generator[Request, Any, None]:
    if not 0 <= seconds < 1e9:
        raise Failure(f"sleep({text_t(seconds)}): that is no time to sleep")
    yield Pause(seconds)


@T.asking("(void v) sleep_trace(float seconds, any... values)")
def sleep_trace(seconds: float, *values: Any) -> Generator[Request, Any, None]:
    yield from sleep(seconds)
    yield Print("AFTER\n")
    yield from trace(*values)


@T.asking("(string o) clock_format(string format, int|float t)")
def clock_format(form: str, t: float) -> Generator[Request, Any, str]:
    """Local time, by strftime's conversions."""
    done: Executed = yield Execute(("date", "-d", f"@{round(t)}", f"+{form}"))
    if done.status:
        raise Failure(f"clock_format: {done.stderr.decode(errors='replace').strip()[-200:]}")
    return done.stdout.decode(errors="surrogateescape").removesuffix("\n")


# ── programs and Python ────────────────────────────────────────────────────────────────────────────


def _run(words: tuple[str, ...]) -> Generator[Request, Any, tuple[str, int]]:
    if not words:
        raise Failure("system: there is no program to run")
    done: Executed = yield Execute(words)
    return done.stdout.decode(errors="surrogateescape").removesuffix("\n"), done.status


@T.asking("(string output, int exit_code) system(string words[])")
def system(words: dict[int, str]) -> Generator[Request, Any, tuple[str, int]]:
    return (yield from _run(tuple(words.values())))


@T.asking("(string output, int exit_code) system1(string command)", "(string output, int exit_code) system(string command)")
def system1(command: str) -> Generator[Request, Any, tuple[str, int]]:
    """One line for the shell."""
    return (yield from _run(("sh", "-c", command)))


def _declare_python() -> None:
    for name, persistent in (("python", False), ("python_persist", True), ("python_exec", False)):

        def call(code: str, expression: str, *more: Any, persistent: bool = persistent) -> Generator[Request, Any, str]:
            return str((yield CallPython(code, expression, persistent, worker("", more))))

        T.asking(f"""(string o) {name}(string code, string expression="''", boolean exceptions_are_errors=true)""", placed=True)(call)


_declare_python()
