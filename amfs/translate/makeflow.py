"""Makeflow: make-like rules, each with its outputs, its inputs and one command. See docs/reference/makeflow.md.

Variables have their values from where they are set on; ``@NAME=`` holds for one rule. Resources belong to the category that is current when
they are set. A rule that calls another Makeflow is expanded in place. The commands run in sandboxes with just their declared inputs.
"""

from __future__ import annotations

import bisect
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from amfs.translate import makeflow_jx
from amfs.translate.commands import SHELL, command_argv
from amfs.translate.document import ELEMENT_BYTES_MAX, NESTED_MAX, Definitions, KeptReader, in_pieces, local_path
from amfs.translate.jx_parse import NotJx
from amfs.translate.makeflow_text import Expander, TooLong, file_names, logical_lines, redirected, split_head
from amfs.translate.shell_quoting import Malformed, quote, split
from amfs.translate.tasklist import parse_size
from amfs.workflow.workflow import Task

_ASSIGNMENT = re.compile(r"(?P<local>@?)[ \t]*(?P<name>[A-Za-z_][\w.-]*)[ \t]*(?P<add>\+?)=(?P<value>.*)", re.DOTALL)
_ALONE = re.compile(r"[A-Za-z_]\w*\+?=\S*")
_EXPORT = re.compile(r"export[ \t]+(?P<rest>\S.*)", re.DOTALL)
_DIRECTIVE = re.compile(r"\.(?P<kind>[A-Z]+)\b(?P<rest>.*)", re.DOTALL)

#: Variables that say what a rule needs: name -> field of Task and how to read it.
_MIB = 1 << 20


def _number(text: str) -> int:
    if not re.fullmatch(r"\d{1,12}", text, re.ASCII):
        raise ValueError("a whole number")
    return int(text)


_RESOURCES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "CORES": ("cores", lambda text: max(1, _number(text))),
    "MEMORY": ("memory", lambda text: _number(text) * _MIB),
    "WALL_TIME": ("time_limit", lambda text: float(_number(text))),
}
_OTHER_RESOURCES = ("DISK", "GPUS", "MPI_PROCESSES", "BATCH_OPTIONS", "MAKEFLOW_CONTAINER")
#: Variables that tasks find in their environment without being exported.
_TOLD = (*_RESOURCES, "DISK", "GPUS", "MPI_PROCESSES")


#: Bytes of a Makeflow that are let go together when they have been read.
_PIECE = 1 << 20


class Rule(msgspec.Struct):
    """A rule whose command has not come yet."""

    line: int
    outputs: list[tuple[str, str]]  # name, and what the command calls it
    inputs: list[tuple[str, str]]
    local: dict[str, str] = {}


class MakeflowReader(KeptReader):
    """Reads a Makeflow; ``tasks`` are complete after ``finish``. Tasks are numbered from 0, as in Makeflow's own logs."""

    confined = False  # a rule names its files as its user does, like any script

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._expander = Expander()
        self._values: dict[str, list[tuple[int, str]]] = {}  # variable -> (number of tasks before, value), growing
        self._exports: dict[str, None] = {}
        self._category = "default"
        self._categorized = False  # some category is named
        self._literal = False  # in JSON values are what they are
        self._resources: dict[str, dict[str, str]] = {}  # category -> variable -> value
        self._rule: Rule | None = None
        self._needs: list[tuple[str, dict[str, str]]] = []  # of each task: category, variables of its rule
        self._alone: dict[str, tuple[str, dict[str, str]]] = {}  # category -> the same of its rules without variables
        self._nested: list[tuple[int, str, str, Mapping[str, object]]] = []  # index of a task, the Makeflow it calls, where, with what

    def finish(self) -> None:
        if self.dead:
            return
        data = self.take()
        if b"\0" in data:
            self.end(data.count(b"\n", 0, data.find(b"\0")) + 1, "this is a binary file (it contains NUL bytes), not a Makeflow")
            return
        if re.match(rb"(?:\s|#[^\n]*\n)*+\{", data):
            self._jx(data)
        elif any(self.definitions[:3]):
            self.end(0, "this Makeflow is not in JX, so nothing can be defined for it")
            return
        else:
            pieces = in_pieces(data, _PIECE)
            del data  # the lines that have been read are not kept beside their tasks
            self._text(pieces)
        if self.dead:
            return
        self._settle()
        self._expand()

    def _text(self, pieces: list[bytes]) -> None:
        for number, line in logical_lines(pieces):
            if len(line) > ELEMENT_BYTES_MAX:
                self.end(number, f"this line is longer than {ELEMENT_BYTES_MAX >> 20} MiB")
                return
            try:
                self._logical(line, number)
            except TooLong as error:
                self.end(number, str(error))
                return
            except Malformed as error:
                self.fault(number, str(error), line)
        self._close_rule()

    def _jx(self, data: bytes) -> None:
        """A Makeflow in JSON or JX. Its words are what they are: nothing is expanded or unquoted."""
        if (given := self._given(data)) is None:
            return
        try:
            parsed = makeflow_jx.parse(data, given, lambda path: os.listdir(os.path.join(self.definitions.directory, path)))
            document = parsed.content
            self._literal = True
            self._categorized = document.default_category != "default"
            for name, category in document.categories.items():
                variables = makeflow_jx.environment(category.environment)
                self._exports |= dict.fromkeys(variables)
                self._resources[name] = variables | makeflow_jx.resources(category.resources)
            for name, value in makeflow_jx.environment(document.environment).items():
                self._values[name] = [(0, value)]
                self._exports[name] = None
        except Malformed as error:
            self.end(error.line if isinstance(error, NotJx) else 0, str(error))
            return
        if document.define:
            self.remark("define", 0, "without expressions, what is under 'define' has no meaning")
        for line, rule, others in makeflow_jx.rules(parsed):
            for name in others:
                self.remark(f"member {name}", line, f"the member {name!r} of a rule has no meaning here")
            try:
                if isinstance(rule, str):
                    raise Malformed(rule)
                self._jx_rule(rule, line, document.default_category)
            except Malformed as error:
                self.fault(line, str(error))

    def _given(self, data: bytes) -> dict[str, object] | None:
        """The names that are defined beside the document; None (and a fault) if they cannot be read."""
        files, expressions, values, _ = self.definitions
        if not files and not expressions:
            return dict(values)
        from amfs.translate import jx_evaluate

        found, texts, source = dict(values), [data], ""
        try:
            for source in files:
                content = self.read_beside(source, 0, "the file of --jx-args")
                if content is None:
                    self.dead = True
                    return None
                texts.append(content)
                found |= jx_evaluate.definitions(content.decode("utf-8", "surrogateescape"), source)
            for name, text in expressions:
                source = f"--jx-define {name}"
                texts.append(os.fsencode(text))
                found[name] = jx_evaluate.expression(text, source)
        except NotJx as error:
            self.end(0, f"{source}: line {error.line}: {error}")
            return None
        for name, _ in expressions:
            if not any(re.search(rb"\b%b\b" % name.encode(), text) for text in texts):
                self.remark(f"--jx-define {name}", 0, f"--jx-define {name}: the document uses no such name")
        return found

    def _jx_rule(self, rule: makeflow_jx.JxRule, line: int, category: str) -> None:
        if rule.input or rule.output:
            self.remark("input, output", line, "'input' and 'output' are taken for 'inputs' and 'outputs'")
        variables = makeflow_jx.environment(rule.environment)
        self._exports |= dict.fromkeys(variables)
        variables |= makeflow_jx.resources(rule.resources)
        if rule.category:
            variables["CATEGORY"] = rule.category
            self._categorized = True
        self._category = category
        inputs, outputs = (
            [(self.share(name), self.share(other)) for files in both for name, other in makeflow_jx.names(files)]
            for both in ((rule.inputs, rule.input), (rule.outputs, rule.output))
        )
        made = Rule(line, outputs, inputs, variables)
        nested = rule.makeflow if isinstance(rule.makeflow, makeflow_jx.Nested) else None
        file = nested.path if nested is not None else rule.workflow or rule.makeflow
        if (rule.command is None) == (not file):
            raise Malformed("a rule has either a command or a workflow")
        if rule.args and rule.command is not None:
            raise Malformed("'args' are for a workflow, and this rule has a command")
        if rule.local_job:
            self.remark("local_job", line, "local_job has no meaning here: a rule runs where there is room")
        if rule.command is not None:
            self._add(made, rule.command.strip(" \t\n"), line)
        else:
            values = {name: msgspec.json.decode(raw) for name, raw in rule.args.items()}
            self._add_nested(made, str(file), nested.cwd if nested is not None else "", values)

    # ── lines ──────────────────────────────────────────────────────────────────────────────────────

    def _logical(self, line: str, number: int) -> None:
        bare = line.strip(" \t")
        if not bare or bare[0] == "#":
            return
        indented = line[0] == "\t" or (line[0] == " " and self._rule is not None)
        match = _ASSIGNMENT.match(bare)
        alone = line[0] == " " and _ALONE.fullmatch(bare)  # as a command it would do nothing
        if match and (self._rule is not None or not indented) and not (indented and not match["local"] and not alone):
            self._assign(match, number)
        elif indented:
            if self._rule is None:
                raise Malformed("a command without a rule: OUTPUTS: INPUTS stands on the line before it, and a rule has one command")
            rule, self._rule = self._rule, None
            self._command(rule, bare, number)
        elif bare[0] == "=" or bare.startswith("+="):
            raise Malformed("a variable without a name")
        elif match := _EXPORT.match(bare):
            self._export(match["rest"], number)
        elif match := _DIRECTIVE.match(bare):
            self._directive(match["kind"], match["rest"], number)
        elif (head := split_head(bare)) is not None:
            self._close_rule()
            self._rule = Rule(number, self._names(head[0]), self._names(head[1]))
        else:
            raise Malformed("neither a rule (OUTPUTS: INPUTS), nor NAME=VALUE, nor a command (indented, below its rule)")

    def _close_rule(self) -> None:
        if self._rule is not None:
            self.fault(self._rule.line, "a rule without a command")
            self._rule = None

    def _names(self, text: str) -> list[tuple[str, str]]:
        found = file_names(self._expander.expand(text, self._look_up, escapes=False))
        return [(self.share(name), self.share(other)) for name, other in found]

    # ── variables ──────────────────────────────────────────────────────────────────────────────────

    def _look_up(self, name: str) -> str | None:
        if self._rule is not None and name in self._rule.local:
            return self._rule.local[name]
        if name == "CATEGORY":
            return self._category
        value = self._resources.get(self._category, {}).get(name)
        if value is None and name in self._values:
            value = self._values[name][-1][1]
        return value if value is not None else os.environ.get(name)

    def _assign(self, match: re.Match[str], number: int) -> None:
        name = match["name"]
        value = self._expander.expand(match["value"], self._look_up, escapes=True).strip(" \t")
        before = self._look_up(name) if match["add"] else None
        if before:
            value = f"{before} {value}"
        if self._rule is not None:
            self._rule.local[name] = value
        elif match["local"]:
            raise Malformed("@ sets a variable for one rule; it stands between the rule and its command")
        else:
            self._set(name, value, number)

    def _set(self, name: str, value: str, number: int) -> None:
        if name == "CATEGORY":
            self._category = self.share(_plain(value))
            self._categorized = True
        elif name in _RESOURCES or name in _OTHER_RESOURCES:
            self._resources.setdefault(self._category, {})[name] = value
            self._check_resource(name, value, number)
        else:
            self._values.setdefault(name, []).append((len(self.tasks), value))

    def _check_resource(self, name: str, value: str, number: int) -> None:
        if name in _OTHER_RESOURCES:
            self.remark(name, number, f"{name} has no meaning here")
            return
        try:
            _RESOURCES[name][1](_plain(value))
        except ValueError as error:
            raise Malformed(f"{name} must be {error}, not {value!r}") from None

    def _export(self, rest: str, number: int) -> None:
        match = _ASSIGNMENT.match(rest)
        if match and not match["local"]:
            self._assign(match, number)
            self._exports[match["name"]] = None
            return
        for name in self._expander.expand(rest, self._look_up, escapes=False).split():
            if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
                raise Malformed(f"{name!r} cannot be the name of an environment variable")
            self._exports[name] = None

    def _directive(self, kind: str, rest: str, number: int) -> None:
        words = split(self._expander.expand(rest, self._look_up, escapes=False), ansi=False)
        if kind in ("MAKEFLOW", "RESOURCE") and len(words) == 2 and words[0] in ("CATEGORY", *_RESOURCES, *_OTHER_RESOURCES):
            self._set(words[0], words[1], number)
        elif kind == "SIZE" and len(words) == 2:
            try:
                self.set_size(self.share(words[0]), parse_size(words[1]), number)
            except ValueError as error:
                raise Malformed(f".SIZE needs {error}") from None
        else:
            self.remark(f".{kind} {words[0] if words else ''}", number, f"the directive .{kind} {' '.join(words)} has no meaning here")

    # ── commands ───────────────────────────────────────────────────────────────────────────────────

    def _command(self, rule: Rule, text: str, number: int) -> None:
        self._rule = rule  # its own variables count
        try:
            command = self._expander.expand(text, self._look_up, escapes=True).strip(" \t\n")
        finally:
            self._rule = None
        if re.match(r"LOCAL(?=[ \t]|\Z)", command):
            command = command[5:].lstrip()
            self.remark("LOCAL", number, "LOCAL has no meaning here: a rule runs where there is room, with the inputs that it declares")
        if match := re.match(r"MAKEFLOW[ \t]+(?P<rest>.+)", command):
            words = split(match["rest"], ansi=False)
            self._add_nested(rule, words[0], words[1] if len(words) > 1 else "")
        else:
            self._add(rule, command, number)

    def _add_nested(self, rule: Rule, file: str, where: str, values: Mapping[str, object] | None = None) -> None:
        """A task that calls another Makeflow, whose rules will take its place. ``values``: of names in it."""
        self._nested.append((len(self.tasks), file, where, values or {}))
        self._add(rule, f"makeflow {quote(file)}", rule.line)

    def _add(self, rule: Rule, command: str, number: int) -> None:
        if not command:
            raise Malformed("an empty command")
        index = len(self.tasks)
        category = rule.local.get("CATEGORY")
        category = self._category if category is None else self._plain(category)
        for name in rule.local:
            if name in _RESOURCES or name in _OTHER_RESOURCES:
                self._check_resource(name, rule.local[name], rule.line)
        known = {name for name, _ in rule.inputs}
        if any(name[:at] in known for name in known for at, letter in enumerate(name) if letter == "/"):
            rule.inputs.sort(key=lambda pair: pair[0].count("/"))  # a directory is placed before what lies in it
        inputs = tuple(dict.fromkeys(name for name, _ in rule.inputs))
        rule.outputs = [(name.rstrip("/") or name, other.rstrip("/") or other) for name, other in rule.outputs]  # directories
        outputs = tuple(dict.fromkeys(name for name, _ in rule.outputs))
        if not outputs:
            self.remark("no targets", rule.line, "a rule without targets: it runs, and what it writes into its directory is not kept")
        argv, streams, label = self._argv(command, rule, set(inputs), set(outputs))
        if category != "default":
            label = category
        words = [self.share(word) for word in argv]
        self._needs.append((category, rule.local) if rule.local else self._alone.setdefault(category, (category, {})))
        self.tasks.append(Task(str(index), tuple(words), inputs, outputs, label=self.share(label), line=rule.line, **streams))

    def _argv(self, command: str, rule: Rule, inputs: set[str], outputs: set[str]) -> tuple[list[str], dict[str, Any], str]:
        """argv, redirections, label. The shell is left out where nothing but redirections of declared files would need it."""
        renamed_inputs = [(name, other) for name, other in rule.inputs if name != other]
        renamed_outputs = [(name, other) for name, other in rule.outputs if name != other]
        plain = command
        if renamed_inputs or renamed_outputs:
            steps = [f"ln -s {quote(_from(name, other))} {quote(other)}" for name, other in renamed_inputs]
            steps = [f"mkdir -p {quote(folder)}" for folder in _folders(renamed_inputs + renamed_outputs)] + steps
            ends = [f"mv {quote(other)} {quote(name)}" for name, other in renamed_outputs]
            command = " && ".join([*steps, f"{{ {command}\n}}", *ends])
        else:
            rest, streams = redirected(command, inputs, outputs)
            if rest:
                argv, label = command_argv(rest)
                if argv[:1] != [SHELL] or argv[2:] != [rest]:
                    return argv, {field: self.share(name) for field, name in streams.items()}, label
        argv, label = command_argv(command)
        if argv[:1] == [SHELL] and command != plain:
            label = command_argv(plain)[1] or posixpath.basename((plain.split() or [plain])[0])
        return argv, {}, label

    # ── at the end ─────────────────────────────────────────────────────────────────────────────────

    def _settle(self) -> None:
        """Environment, resources and files to keep, which later lines may have said."""
        try:
            keep = {name for name, _ in self._list_of("MAKEFLOW_OUTPUTS")}
        except Malformed as error:
            self.fault(0, f"MAKEFLOW_OUTPUTS: {error}")
            keep = set()
        environments: dict[tuple[str, ...], tuple[str, ...]] = {}
        for index, task in enumerate(self.tasks):
            category, local = self._needs[index]
            changes: dict[str, Any] = {}
            needs = self._resources.get(category, {})
            env = tuple([f"{name}={value}" for name, value in self._environment(index, category, needs, local)])
            if env:
                changes["env"] = environments.setdefault(env, env)
            for name, (field, convert) in _RESOURCES.items():
                value = local.get(name, needs.get(name, os.environ.get(name) if category == "default" else None))
                if value is not None:
                    try:
                        changes[field] = convert(self._plain(value))
                    except ValueError:
                        self.remark(f"environment {name}", task.line, f"{name}={value} in the environment is no number, and is ignored")
            if keep and (kept := tuple([name for name in task.outputs if name in keep])):
                changes["keep"] = kept
            if changes:
                self.tasks[index] = msgspec.structs.replace(task, **changes)

    def _list_of(self, name: str) -> list[tuple[str, str]]:
        return [entry for _, value in self._values.get(name, [])[-1:] for entry in file_names(_plain(value))]

    def _environment(self, index: int, category: str, needs: dict[str, str], local: dict[str, str]) -> Iterator[tuple[str, str]]:
        """Exported variables, and those that Makeflow sets for every task: its category and its needs."""
        own = {"CATEGORY": category} if self._categorized else {}
        own |= {name: value for name in _TOLD if (value := local.get(name, needs.get(name))) is not None}
        if "CORES" in own and "OMP_NUM_THREADS" not in self._exports and "OMP_NUM_THREADS" not in os.environ:
            own["OMP_NUM_THREADS"] = own["CORES"]
        for name in self._exports:
            if name not in own and (value := self._value_at(name, index, needs, local)) is not None:
                yield name, value
        for name, value in own.items():
            yield name, self._plain(value)

    def _value_at(self, name: str, index: int, needs: dict[str, str], local: dict[str, str]) -> str | None:
        """The value of a variable as the rule of a task sees it."""
        value = local.get(name, needs.get(name))
        if value is None and (history := self._values.get(name)):
            found = bisect.bisect_right(history, index, key=lambda entry: entry[0]) - 1
            value = history[max(found, 0)][1]
        return self._plain(value) if value is not None else os.environ.get(name)

    def _plain(self, value: str) -> str:
        return value if self._literal else _plain(value)

    # ── Makeflows in Makeflows ─────────────────────────────────────────────────────────────────────

    def _expand(self) -> None:
        children: dict[int, tuple[MakeflowReader, str]] = {}
        for index, file, where, values in self._nested:
            if (child := self._child(index, file, where, values)) is not None:
                children[index] = child, where
        if not children:
            return
        tasks: list[Task] = []
        for index, task in enumerate(self.tasks):
            if index not in children:
                tasks.append(task)
                continue
            child, where = children[index]
            inner = [_adopted(each, task, where) for each in child.tasks]
            made = {name for each in inner for name in each.outputs}
            for name in task.outputs:
                if name not in made:
                    self.fault(task.line, f"the Makeflow {child.source} does not make {name!r}, which this rule is to make")
            for name, size in child.sizes.items():
                self.set_size(_inside(name, where), size, task.line)
            tasks += inner
        self.tasks = tasks

    def _child(self, index: int, file: str, where: str, values: Mapping[str, object]) -> MakeflowReader | None:
        task = self.tasks[index]
        name = local_path(file)
        places = [os.path.join(self.directory, where, name), os.path.join(self.directory, name)]
        path = next((os.path.abspath(place) for place in places if os.path.isfile(place)), "")
        here = os.path.abspath(self.source)
        if not path and values:
            self.fault(task.line, f"the Makeflow {file}, which has 'args', is not there")
            return None
        if not path:
            words = f"the Makeflow {file} is not there (another rule may make it); the rule is left as a call of makeflow"
            self.remark("MAKEFLOW", task.line, words)
            return None
        if path == here or path in self.outer:
            self.fault(task.line, f"the Makeflow {file} contains itself")
            return None
        if len(self.outer) >= NESTED_MAX:
            self.fault(task.line, f"Makeflows lie deeper than {NESTED_MAX} levels in each other")
            return None
        if where and (os.path.isabs(where) or f"{posixpath.normpath(where)}/".startswith("../")):
            self.fault(task.line, f"the directory {where!r} of a nested Makeflow must lie below that of the outer one")
            return None
        data = self.read_beside(path, task.line, "the Makeflow")
        if data is None:
            return None
        child = MakeflowReader(path)
        child.definitions = Definitions(values=values, directory=os.path.join(self.definitions.directory, where))
        child._exports = dict(self._exports)
        child._values = {name: [(0, history[-1][1])] for name, history in self._values.items() if name in self._exports}
        return child if self.read_nested(child, data, task.line, "nested Makeflow") else None


def _plain(value: str) -> str:
    """A value without the quotes around all of it."""
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" and value[0] not in value[1:-1]:
        return value[1:-1]
    return value


def _from(name: str, other: str) -> str:
    """``name`` as seen from where ``other`` lies."""
    return name if name.startswith("/") else posixpath.relpath(name, posixpath.dirname(other) or ".")


def _folders(renamed: list[tuple[str, str]]) -> list[str]:
    return sorted({folder for _, other in renamed if (folder := posixpath.dirname(other)) and not other.startswith("/")})


def _inside(name: str, where: str) -> str:
    return posixpath.normpath(posixpath.join(where, name)) if where and name and not name.startswith("/") else name


def _adopted(task: Task, outer: Task, where: str) -> Task:
    """A task of a nested Makeflow as one of the outer: its files lie in the directory ``where``."""
    return msgspec.structs.replace(
        task,
        id=f"{outer.id}.{task.id}",
        inputs=tuple(_inside(name, where) for name in task.inputs),
        outputs=tuple(_inside(name, where) for name in task.outputs),
        stdin=_inside(task.stdin, where),
        stdout=_inside(task.stdout, where) if not task.stdout.startswith("/dev/") else task.stdout,
        stderr=_inside(task.stderr, where) if not task.stderr.startswith("/dev/") else task.stderr,
        keep=tuple(name for each in task.outputs if (name := _inside(each, where)) in outer.keep or each in task.keep),
        cwd=_inside(task.cwd or ".", where) if where else task.cwd,
        line=outer.line,
    )
