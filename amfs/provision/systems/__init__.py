"""Batch systems as data: the values of ``--on``. Owns the form of a system's file and the shipped ones; runs nothing."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from amfs.engine.jobs import Row
from amfs.errors import UsageError, unknown_key
from amfs.vocabulary.job_states import JobEvent

HERE = Path(__file__).parent
SHIPPED = tuple(sorted(path.stem for path in HERE.glob("*.toml")))
OTHERS = ("command", "dask", "local", "ray")  # that "--on" names, too


class System(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One batch system. Commands are lists of words, in which ``{name}`` stands for a value."""

    inside: str = ""  # the environment variable that is set within a job
    hosts: tuple[str, ...] = ()  # prints the hosts of the job
    launch: tuple[str, ...] = ()  # runs a command on {count} of them, {hosts} with commas between
    tasks: str = ""  # the variable that says how many copies of this command the system runs
    submit: tuple[str, ...] = ()  # one job that runs {script}; the words {more} are what a user gives after --
    job_id: str = r"(\S+)"  # finds the number of the job in what that prints
    state: tuple[str, ...] = ()  # prints a line for each job of {session}, those that wait, run and are over
    row: str = ""  # finds "job", "state" and, where there is one, "why" in such a line; other lines are passed over
    cancel: tuple[str, ...] = ()  # ends {jobs}
    # Another way than jobs: runs one node, and gives it our standard input, for as long as that takes. The word {words} is its command; in
    # others {command} is that for a shell. Beside these {session}, {number}, and {host}, a line of the file of --hosts.
    start: tuple[str, ...] = ()
    amfs: tuple[str, ...] = ()  # how amfs is called there; (): by this interpreter's path
    time: str = "{hours}:{minutes:02}:{seconds:02}"  # how the system writes --time
    no_time: str = ""  # --time, if none is given; "": words with {time} are left out
    waiting: tuple[str, ...] = ()  # states
    running: tuple[str, ...] = ()
    over: tuple[str, ...] = ()  # any other state concludes nothing
    never: dict[str, str] = {}  # reasons that do not pass by themselves, and their meaning
    words: dict[str, str] = {}  # other reasons and states, for people
    name: str = ""

    def is_inside(self, environ: Mapping[str, str]) -> bool:
        """Whether a process with this environment is in a job of the system."""
        return bool(environ.get(self.inside))

    def copies(self, environ: Mapping[str, str]) -> int:
        """How many processes the system has started for the command that this process runs."""
        text = environ.get(self.tasks, "")
        return int(text) if text.isdecimal() else 1

    @property
    def can_submit(self) -> bool:
        return bool(self.submit)

    @property
    def needs_hosts(self) -> bool:
        return any("{host}" in word for word in self.start)

    def starting(self, session: str, number: int, host: str, node: Sequence[str], more: Sequence[str]) -> list[str]:
        """The command that runs ``node`` (words) on a host, or wherever the system likes."""
        values = {"session": session, "number": str(number), "host": host, "command": shlex.join(node)}
        return _filled(self.start, values, {"{more}": more, "{words}": node})

    def submission(self, session: str, number: int, script: str, log: str, time_s: int | None, more: Sequence[str]) -> list[str]:
        """The command that submits one job."""
        values = {"session": session, "number": str(number), "script": script, "log": log, "time": self.no_time}
        if time_s is not None:
            parts = {"total": time_s, "hours": time_s // 3600, "minutes": time_s // 60 % 60, "all_minutes": -(-time_s // 60)}
            values["time"] = _with_values(self.time, {**parts, "seconds": time_s % 60})
        return _filled([word for word in self.submit if values["time"] or "{time}" not in word], values, {"{more}": more})

    def cancelling(self, session: str, jobs: Sequence[str]) -> list[str]:
        """The command that ends these jobs."""
        return _filled(self.cancel, {"session": session}, {"{jobs}": jobs})

    def asking(self, session: str) -> list[str]:
        """The command that prints the jobs of a session."""
        return _filled(self.state, {"session": session}, {})

    def rows(self, text: str) -> dict[str, Row]:
        """Each job, as the queue lists it. A state that is not known is left out: it concludes nothing."""
        found: dict[str, Row] = {}
        for match in map(re.compile(self.row).search, text.splitlines()):
            if match is None:
                continue
            groups = match.groupdict("")
            state, why = groups["state"], groups.get("why", "")
            kinds = ((self.waiting, JobEvent.WAITS), (self.running, JobEvent.RUNS), (self.over, JobEvent.OVER))
            event = next((event for states, event in kinds if state in states), None)
            if event is None:
                continue
            reason = (why if event is JobEvent.WAITS else state).strip("()")
            reason = "" if reason in ("None", "undefined") else reason
            meaning = self.never.get(reason) or self.words.get(reason)
            said = f"{reason}: {meaning}" if meaning else reason
            found[groups["job"]] = Row(event, said, event is JobEvent.WAITS and reason in self.never)
        return found

    def missing(self) -> list[str]:
        """Programs of its commands about jobs that are not on this host."""
        programs = dict.fromkeys(words[0] for words in (self.submit, self.state, self.cancel) if words)
        return [program for program in programs if shutil.which(program) is None]

    def launcher(self, hosts: Sequence[str]) -> list[str]:
        """The words before a command that is to run once on each of ``hosts``."""
        values = {"count": str(len(hosts)), "hosts": ",".join(hosts)}
        return _filled(self.launch, values, {})


def _filled(words: Sequence[str], values: Mapping[str, str], many: Mapping[str, Sequence[str]]) -> list[str]:
    """``words`` with their values; those that ``many`` has become several. Raises ValueError."""
    return [part for word in words for part in (many[word] if word in many else [_with_values(word, values, many)])]


def _with_values(word: str, values: Mapping[str, object], alone: Iterable[str] = ()) -> str:
    """Raises ValueError, with the word, if it names a value that is not there; those of ``alone`` are no parts of a word."""
    try:
        return word.format_map(values)
    except KeyError as error:
        known = [f"{{{name}}}" for name in values] + [f"{name} as a word of its own" for name in alone]
        raise ValueError(f"'{word}': no value is named {{{error.args[0]}}}; there are {', '.join(known)}") from None
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise ValueError(f"'{word}': {error}; a brace itself is written twice") from None


def _groups(key: str, pattern: str) -> re.Pattern[str]:
    """Raises ValueError, with the key, if this is no pattern."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{key} = '{pattern}' is no pattern: {error}") from None


def load(name: str) -> System:
    """A shipped system by its name, or the one in a file (a path with a slash, or ``*.toml``). Raises UsageError."""
    path = Path(name) if "/" in name or name.endswith(".toml") else HERE / f"{name}.toml"
    try:
        found = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), type=System)
        _check(found)
    except FileNotFoundError:
        if path.parent != HERE:
            raise UsageError(f"--on {name}: no such file") from None
        known = ", ".join(sorted((*SHIPPED, *OTHERS)))
        raise UsageError(f"--on {name}: no such system; there are {known}, or the path of a file") from None
    except OSError as error:
        raise UsageError(f"--on {name}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"--on {path}: not the description of a batch system: {unknown_key(error, System.__struct_fields__)}") from None
    return msgspec.structs.replace(found, name=path.stem)


def of_words(words: Sequence[str]) -> System:
    """The system that "submit=…", "cancel=…" and the like describe: the keys of a file; commands and lists are split as a shell does.

    "state" prints, if nothing else is said, lines of a job, "waiting", "running" or "over", and a reason. Raises UsageError.
    """
    lists = {field for field, of in System.__annotations__.items() if of.startswith("tuple")}
    facts: dict[str, object] = {"row": r"^(?P<job>\S+)\s+(?P<state>\S+)\s*(?P<why>.*)$"}
    facts |= {name: [name] for name in ("waiting", "running", "over")}
    keys = ("submit", "state", "cancel", "job_id", "row", "waiting", "running", "over", "time", "no_time")
    try:
        for word in words:
            key, equals, value = word.partition("=")
            if key not in keys or not equals:
                raise ValueError(f"'{word}': write KEY=VALUE; keys are {', '.join(keys)}")
            facts[key] = shlex.split(value) if key in lists else value
        if "state" not in facts:
            facts["row"] = ""
        found = msgspec.convert(facts, type=System)
        if not found.submit:
            raise ValueError("say at least submit='COMMAND {script}' and cancel='COMMAND {jobs}' after --")
        _check(found)
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"--on command: {error}") from None
    return msgspec.structs.replace(found, name="command")


def _check(system: System) -> None:
    """Raises ValueError if a command could not be made of it."""
    if not system.submit and not system.start and not (system.hosts and system.launch):
        raise ValueError("it needs 'submit', 'start', or 'hosts' and 'launch'; a command has no words")
    if system.start and (system.submit or system.launch):
        raise ValueError("'start' stands alone: it starts nodes that are no jobs")
    if system.start and not any("NODE" in word for word in system.starting("s", 1, "host", ["NODE"], ())):
        raise ValueError("'start' names neither {words} nor {command}")
    if bool(system.hosts) != bool(system.launch) or (system.launch and not system.inside):
        raise ValueError("'inside', 'hosts' and 'launch' go together")
    system.launcher(["host"])
    system.cancelling("s", ["1"])
    if not system.submit:
        return
    if "{script}" not in " ".join(system.submission("s", 1, "{script}", "log", 60, ())):
        raise ValueError("'submit' does not name {script}")
    if bool(system.state) != bool(system.row) or not system.cancel:
        raise ValueError("'submit' needs 'cancel'; 'state' and 'row' go together")
    job_id, row = _groups("job_id", system.job_id), _groups("row", system.row)
    if job_id.groups != 1 or (system.row and not {"job", "state"} <= row.groupindex.keys()):
        raise ValueError("'job_id' needs one group, and 'row' the groups 'job' and 'state'")
    system.asking("s")


def around(environ: Mapping[str, str] | None = None) -> System | None:
    """The system in one of whose jobs this process is, if any."""
    environ = os.environ if environ is None else environ
    return next((system for system in map(load, SHIPPED) if system.launch and system.is_inside(environ)), None)
