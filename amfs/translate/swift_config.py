"""Configuration files of Swift/K: ``swift.conf``, properties, ``tc.data``, ``sites.xml``; known by content. Those with a meaning here are
taken over: retries, whether a failure ends the run, where programs are, their environment. The rest is named in remarks.

Must not know: options of the command line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from xml.parsers import expat

from amfs.errors import UsageError
from amfs.patterns import pattern
from amfs.swift.tree import Literal, Program
from amfs.swift.types import STRING

#: Of what has no meaning here so many names are told.
_TOLD = 8
_BYTES_MAX = 16 << 20


class Setting(NamedTuple):
    line: int
    path: tuple[str, ...]
    value: str


class Settings:
    """``programs``: of an app's program as scripts name it, the path; ``environment``: likewise its variables, "" those of all."""

    def __init__(self) -> None:
        self.retries: int | None = None
        self.fail_fast: bool | None = None
        self.programs: dict[str, str] = {}
        self.environment: dict[str, dict[str, str]] = {}
        self.remarks: list[str] = []

    def read(self, name: str, environment: Mapping[str, str]) -> None:
        """Take over one file. Raises ``UsageError``."""
        try:
            with open(name, "rb") as file:
                data = file.read(_BYTES_MAX + 1)
        except OSError as error:
            raise UsageError(f"cannot read {name}: {error.strerror or error}") from error
        if len(data) > _BYTES_MAX or b"\0" in data:
            raise UsageError(f"{name}: this is no configuration of Swift/K")
        ignored: dict[str, None] = {}
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        settings: Iterable[Setting]
        if text.lstrip().startswith("<"):
            settings = _of_xml(name, data)
        elif any(_CATALOG.match(line) for line in text.splitlines()):
            settings = _of_catalog(name, text)
        else:
            settings = _of_conf(name, text, environment)
        for setting in settings:
            if not self._take(name, setting):
                ignored[".".join(setting.path)] = None
        if ignored:
            more = f" and {len(ignored) - _TOLD} more" if len(ignored) > _TOLD else ""
            self.remarks.append(f"{name}: without a meaning here: {', '.join(list(ignored)[:_TOLD])}{more}")

    def _take(self, name: str, setting: Setting) -> bool:
        """Has it a meaning?"""
        line, path, value = setting
        key = "".join(path).replace(".", "").replace("_", "").lower()
        if key in ("executionretries", "lazyerrors"):
            return self._take_failures(f"{name}:{line}", key, value)
        if "app" not in path:
            if len(path) > 1 and path[-2] == "env":
                self.environment.setdefault("", {})[path[-1]] = value
                return True
            return False
        program, *rest = path[path.index("app") + 1 :] or [""]
        program = "" if program == "ALL" else program
        if rest == ["executable"]:
            if program and value not in ("", "*"):
                self.programs.setdefault(program, value)
            return bool(program) or value == "*"
        if len(rest) == 2 and rest[0] == "env":
            self.environment.setdefault(program, {})[rest[1]] = value
            return True
        return False

    def _take_failures(self, where: str, key: str, value: str) -> bool:
        if key == "executionretries":
            if not re.fullmatch(r"\d{1,6}", value):
                raise UsageError(f"{where}: execution.retries is a number of attempts, and not {value!r}")
            self.retries = int(value)
        else:
            if value not in ("true", "false"):
                raise UsageError(f"{where}: lazy.errors is true or false, and not {value!r}")
            self.fail_fast = value == "false"
        return True

    def apply(self, program: Program) -> None:
        """Programs get their paths, and apps their environment."""
        for function in program.functions:
            app = function.app
            if app is None or not isinstance(first := app.words[0].expression, Literal):
                continue
            variables = {**self.environment.get("", {}), **self.environment.get(str(first.value), {})}
            first.value = self.programs.get(first.value, first.value)
            for name, value in variables.items():
                literal = Literal(app.at, value)
                literal.type = STRING
                app.profile.insert(0, (f"env:{name}", literal))  # those of the script come later


# ── tc.data ────────────────────────────────────────────────────────────────────────────────────────

#: site, program, path, and perhaps: INSTALLED, platform, profiles.
_CATALOG = pattern(
    r"""[ \t]*(?!\#)[^\s=:{}"]+[ \t]+[^\s={}"]+(?<!:)[ \t]+[^\s={}"]+(?:[ \t]+(?:INSTALLED|null)\b.*)?[ \t]*(?:\#.*)?\Z"""
)
_PROFILE = pattern(r'(\w+)::(\w+)="?([^";]*)"?')


def _of_catalog(name: str, text: str) -> Iterator[Setting]:
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split(None, 5)
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 3:
            raise UsageError(f"{name}:{number}: a line is 'site program path', and not {line.strip()[:80]!r}")
        entries.append((number, words))
    entries.sort(key=lambda entry: entry[1][0] != "localhost")  # where this runs
    for number, words in entries:
        yield Setting(number, ("app", words[1], "executable"), words[2])
        for space, key, value in _PROFILE.findall(words[5] if len(words) > 5 else ""):
            yield Setting(number, ("app", words[1], "env", key) if space.lower() == "env" else (space.lower(), key), value)


# ── sites.xml ──────────────────────────────────────────────────────────────────────────────────────


def _of_xml(name: str, data: bytes) -> list[Setting]:
    found: list[Setting] = []
    profile: list[str] = []
    parser = expat.ParserCreate()
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def refuse(*_: object) -> None:
        raise UsageError(f"{name}:{parser.CurrentLineNumber}: entities are not read")

    def begin(tag: str, attributes: dict[str, str]) -> None:
        tag = tag.rpartition(":")[2]
        profile[:] = [attributes.get("namespace", "").lower(), attributes.get("key", ""), ""] if tag == "profile" else []
        if tag not in ("config", "pool", "sites", "site", "profile"):
            found.append(Setting(parser.CurrentLineNumber, (tag,), ""))

    def text(piece: str) -> None:
        if profile:
            profile[2] += piece

    def end(_: str) -> None:
        if profile:
            found.append(Setting(parser.CurrentLineNumber, tuple(profile[:2]), profile[2].strip()))
            profile.clear()

    parser.EntityDeclHandler = refuse
    parser.StartElementHandler, parser.CharacterDataHandler, parser.EndElementHandler = begin, text, end
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise UsageError(f"{name}:{error.lineno}: not well-formed XML: {expat.ErrorString(error.code)}") from None
    return found


# ── swift.conf, properties ─────────────────────────────────────────────────────────────────────────

_TOKEN = pattern(
    r"""(?P<blank>[ \t\r]+|(?:\#|//)[^\n]*)|(?P<end>[\n,])|(?P<open>\{)|(?P<close>\})|(?P<is>\+?=|:)|(?P<list>\[)
    |(?P<text>"(?:[^"\\\n]|\\.)*")|(?P<word>(?:(?!//)[^\s,{}\[\]=:"\#])+)|(?P<other>.)""",
    re.VERBOSE,
)
_VARIABLE = pattern(r"\$\{\??(?:env\.)?(\w+)\}")


def _of_conf(name: str, text: str, environment: Mapping[str, str]) -> Iterator[Setting]:
    """Keys with points or braces, "key: value" or "key = value", lists (given as their text), ${VARIABLE} of the environment."""
    around: list[tuple[str, ...]] = [()]
    at, line = 0, 1
    key: list[str] = []

    def wrong(words: str) -> UsageError:
        return UsageError(f"{name}:{line}: {words}; a setting is 'name: value', 'name = value' or 'name {{ … }}'")

    def path() -> tuple[str, ...]:
        return (*around[-1], *(step for part in key for step in ([part[1:-1]] if part.startswith('"') else part.split(".")) if step))

    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None
        at = match.end()
        kind, token = str(match.lastgroup), match[0]
        if kind == "open":
            around.append(path())
            key = []
        elif kind in ("end", "close"):
            if key and key[0] != "include" and not (kind == "end" and re.match(r"\s*\{", text[at:])):
                raise wrong(f"{' '.join(key)!r} has no value")
            if kind == "close":
                if len(around) == 1:
                    raise wrong("a '}' too many")
                around.pop()
            key = key if kind == "end" and key and key[0] != "include" else []
        elif kind == "is":
            if not key:
                raise wrong(f"{token!r} has no name before it")
            brace = re.compile(r"\s*(?=\{)").match(text, at)
            if brace:
                at = brace.end()
                line += brace[0].count("\n")
                continue
            value, end = _value(text, at)
            yield Setting(line, path(), _VARIABLE.sub(lambda found: environment.get(found[1], found[0]), value))
            line += text.count("\n", at, end)
            at, key = end, []
        elif kind in ("word", "text"):
            key.append(token)
        elif kind in ("list", "other"):
            raise wrong(f"{token!r} is not expected here")
        line += token.count("\n")
    if len(around) > 1 or key:
        raise wrong("a '}' is missing" if len(around) > 1 else f"{' '.join(key)!r} has no value")


_LIST = pattern(r"\s*\[[^\]]*\]")
_VALUE = pattern(r"""(?:"(?:[^"\\\n]|\\.)*"|\$\{[^}\n]*\}|(?!//)[^\n,}#"])*""")
_QUOTED = pattern(r'"((?:[^"\\]|\\.)*)"')


def _value(text: str, at: int) -> tuple[str, int]:
    """(what stands there, where it ends)."""
    match = _LIST.match(text, at) or _VALUE.match(text, at)
    assert match is not None
    return _QUOTED.sub(lambda quoted: re.sub(r"\\(.)", r"\1", quoted[1]), match[0].strip()), match.end()


# ── what is there and was not asked for ────────────────────────────────────────────────────────────

_USUAL = ("swift.conf", "swift.properties", "cf", "sites.xml", "tc.data")
#: Variables of Swift/T that have a meaning here, or that say nothing about a run.
_KNOWN = ("TURBINE_PRINTF_NL", "TURBINE_APP_RETRIES", "TURBINE_HOME")


def unread(script: str) -> str:
    """A remark on configuration files beside a script; or ''."""
    directory = os.path.dirname(script)
    found = [name for name in _USUAL if os.path.isfile(os.path.join(directory, name))]
    if not found:
        return ""
    options = " ".join(f"--config {os.path.join(directory, name)}" for name in found)
    one = len(found) == 1
    return f"{', '.join(found)} beside the script {'is' if one else 'are'} not read; to use {'it' if one else 'them'}: {options}"


def turbine_retries(environment: Mapping[str, str]) -> int | None:
    """The number in TURBINE_APP_RETRIES. Raises ``UsageError``."""
    text = environment.get("TURBINE_APP_RETRIES", "")
    if text and not re.fullmatch(r"\d{1,6}", text):
        raise UsageError(f"TURBINE_APP_RETRIES is a number of attempts, and not {text!r}")
    return int(text) if text else None


def turbine_ignored(environment: Mapping[str, str]) -> str:
    """A remark on variables of Swift/T that have no meaning here; or ''."""
    names = sorted(name for name in environment if name.startswith(("TURBINE_", "ADLB_")) and name not in _KNOWN)
    names = [name for name in names if re.fullmatch(r"TURBINE_\w+_WORKERS", name) is None]  # says what getenv gives
    return f"of the environment, without a meaning here: {', '.join(names[:_TOLD])}" if names else ""
