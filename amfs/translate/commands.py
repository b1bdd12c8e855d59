"""Plain lists of command lines, one a line with nothing declared, and AMFS Shell's form that declares its files at the end. Pure.

A plain command runs in the directory where the user stands. It is started directly if its line means the same to us as to a shell, else
by ``/bin/sh -c``, or by the shell that was asked for (``--shell``, or a line ``#amfs shell NAME``). ``prog in out -if in … -of out …``
names its inputs and outputs: such a task is staged, and the program does not see the two lists.
"""

from __future__ import annotations

import posixpath
import re

from amfs.patterns import pattern
from amfs.translate.bash_only import INSTEAD, bash_only
from amfs.translate.reader import Reader
from amfs.translate.shell_quoting import Malformed, QuotingError, Word, split, trim
from amfs.workflow.workflow import Task

SHELL = "/bin/sh"
PRAGMA = "#amfs "
PLAIN_SHELLS = frozenset(("sh", "dash", "ash", "busybox", "posh", "yash"))

#: Lines in which nothing but quoting needs a shell: no operators, expansions, globs or braces outside of quotes.
_DIRECT = pattern(
    r"""(?: [^'"\\|&;<>()$`*?\[\]\#~{}!\0-\x08\n-\x1f]++ | '[^']*+' | "(?:[^"\\$`]|\\.)*+" | \\. )*+""", re.VERBOSE | re.DOTALL
)
_ASSIGNMENT = pattern(r"[A-Za-z_][A-Za-z0-9_]*=")

#: Words that only a shell can run: its keywords, and built-in commands that change the shell itself or have no program of their own.
_SHELL_WORDS_TEXT = """
    . : alias bg break builtin case cd command continue coproc declare do done elif else enable esac eval exec
    exit export fc fg fi for function getopts hash if in jobs let local logout popd pushd read readonly return
    select set shift shopt source suspend then time times trap type typeset ulimit umask unalias unset until wait
    while
"""
_SHELL_WORDS = frozenset(_SHELL_WORDS_TEXT.split())

#: Lines of nothing but a change of the shell that reads them. Each line has a shell of its own, so no other line would see it.
_VAIN = pattern(
    r"""(?: (?:cd|pushd|popd|export|unset|alias|unalias|shopt) (?:[ \t][^;&|<>\n]*+)?
      | (?:[A-Za-z_][A-Za-z0-9_]*+=[^\s;&|<>'"$`()]*+[ \t]*+)++ )""",
    re.VERBOSE,
)

#: No program is called so: this is a line of YAML, or a rule of a Makeflow.
_NO_PROGRAM = pattern(r"""[^\s:=|&;<>()'"$`\\]+:(?=\s|\Z)""")

_LIST = pattern(r"(?:(?<=[ \t])|\A)-(?:if|of)(?=[ \t]|\Z)")


class CommandReader(Reader):
    """Reads command lines; tasks are numbered from 1. ``usage``: True: every ``-if`` and ``-of`` declares files; False: none does;
    None: where it can hardly mean anything else (``-if`` is there, or what follows ``-of`` also stands in the command). ``shell`` runs
    the lines that need one. ``sh``: the name of the program that /bin/sh is here.
    """

    def __init__(self, source: str, usage: bool | None = None, shell: str = "", sh: str = "sh") -> None:
        super().__init__(source)
        self._usage = usage
        self._count = 0
        self._shell = shell or SHELL
        self._sh = sh

    def text(self, text: str, first: int) -> None:
        for number, line in enumerate(text.split("\n"), first):
            bare = trim(line)
            if not bare or bare[0] == "#":
                if bare.startswith(PRAGMA):
                    self._pragma(bare, number)
                continue
            self._count += 1
            try:
                self.tasks.append(self._task(bare, str(self._count), number))
            except Malformed as error:
                self.fault(number, str(error), line)
        self.bound()

    def _pragma(self, line: str, number: int) -> None:
        words = line.split()
        if len(words) == 3 and words[1] == "shell":
            self._shell = words[2]
        else:
            self.fault(number, f"of {PRAGMA.strip()} there is here: '#amfs shell NAME', which has the lines below run by that shell")

    def _argv(self, line: str) -> tuple[list[str], str]:
        if _VAIN.fullmatch(line):
            word = line.split()[0]
            instead = "'cd DIRECTORY && COMMAND' on each line" if word in ("cd", "pushd", "popd") else "'NAME=VALUE COMMAND' on each line"
            raise Malformed(f"{word!r} alone changes nothing, for each line runs by itself: write {instead}, or do it before amfs run")
        argv, label = command_argv(line, self._shell)
        if argv[1:] == ["-c", line] and (why := misread(line, self._shell, self._sh)):
            raise Malformed(f"{why}; or have bash run the lines (amfs run --shell bash, or a line '#amfs shell bash' above)")
        return argv, label

    def _task(self, line: str, task_id: str, number: int) -> Task:
        if self._usage is None and _NO_PROGRAM.match(line):
            raise Malformed(f"{line.split()[0]!r} is no command (--format commands runs every line)")
        declared = _declared(line, self._usage)
        if declared is None:
            argv, label = self._argv(line)
            return Task(task_id, self._shared(argv), label=self.share(label), staged=False, line=number)
        command, inputs, outputs = declared
        if not command:
            raise Malformed("there is no command before -if and -of")
        argv, label = self._argv(command)
        return Task(task_id, self._shared(argv), self._shared(inputs), self._shared(outputs), label=self.share(label), line=number)

    def _shared(self, words: list[str]) -> tuple[str, ...]:
        return tuple([self.share(word) for word in words])


def command_argv(line: str, shell: str = SHELL) -> tuple[list[str], str]:
    """argv of a command line (``shell`` runs it if it needs one), and a label where the program's name would say nothing.

    Raises Malformed for quotes that do not match.
    """
    if _DIRECT.fullmatch(line):
        words = split(line, ansi=False)
        first = words[0]
        if not _ASSIGNMENT.match(first) and (isinstance(first, Word) or first not in _SHELL_WORDS):
            return words, ""
    else:
        _check_quotes(line)
    name = re.match(r"[\w./+-]+(?=[ \t]|\Z)", line)
    return [shell, "-c", line], posixpath.basename(name[0]) if name else ""


def misread(line: str, shell: str, sh: str) -> str:
    """Why ``shell`` would read the line otherwise than bash, and what to write instead; '' if it would not. ``sh``: the kind of /bin/sh."""
    name = posixpath.basename(shell)
    real = sh if name == "sh" else name
    if real not in PLAIN_SHELLS or not (found := bash_only(line)):
        return ""
    whose = f"{shell} is {real} here, which" if real != name else shell
    return f"{whose} does not know {found} of bash: {INSTEAD[found]}"


def _check_quotes(line: str) -> None:
    """A quote that is never closed is a fault of the list. Where a shell may see quotes otherwise than we do, it is left to the shell."""
    if "$(" not in line and "`" not in line and "${" not in line and "#" not in line:
        split(line, ansi=False)


def _declared(line: str, usage: bool | None) -> tuple[str, list[str], list[str]] | None:
    """The command, inputs and outputs of a line that declares them; None if it does not."""
    if usage is False or (" -if" not in line and " -of" not in line and "\t-" not in line and line[:1] != "-"):
        return None
    for match in _LIST.finditer(line):
        try:
            words = split(line[: match.start()], ansi=False)
        except QuotingError:
            continue  # inside of quotes
        inputs: list[str] = []
        outputs: list[str] = []
        seen_inputs = False
        into = inputs
        for word in split(line[match.start() :]):
            if word == "-if" and not isinstance(word, Word):
                into, seen_inputs = inputs, True
            elif word == "-of" and not isinstance(word, Word):
                into = outputs
            else:
                into.append(word)
        if usage is None and not seen_inputs and not (outputs and set(outputs) <= set(words)):
            return None
        return line[: match.start()].rstrip(" \t"), inputs, outputs
    return None
