"""Random Swift/T programs that are right, or wrong in one place.

Statements are made in an order in which each reads only what is there already, so nothing waits for ever. Then each block is shuffled,
since the order of statements means nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, NamedTuple

PRELUDE = """
type S { int a; float b; int c[]; }
(int o) late(int i) { sleep(0.1) => o = i; }
(string o) later(string s) { wait (late(1)) { o = s; } }
(int o) never(int i) { if (i == -123456) { o = 1; } }
(int o[]) fill(int n, int k) { foreach i in [0:n] { o[i] = late(i * k); } }
(int o) add(int a, int b=10, int c=100) { o = a + b + c; }
(float o) half(float x) { o = x / 2; }
(string o) kind(int i) { o = "int"; }
(string o) kind(float i) { o = "float"; }
(string o) kind(string i) { o = "string"; }
(int o) count(int first, int... more) { o = first + size(more); }
(int o, string s) two(int i) { s = "t" + i; o = late(i + 1); }
(S o) make(int i) { o.b = i; o.a = late(i); foreach j in [1:3] { o.c[j] = i * j; } }
(int o) down(int n, int x) { if (n <= 0) { o = x; } else { o = down(n - 1, (x * 3 + n) %% 1009) + 1; } }
"""

SCALARS = ("int", "float", "string", "boolean")


class Known(NamedTuple):
    """A variable. ``keys``: those of an array that are surely there."""

    name: str
    type: str
    keys: tuple[Any, ...] = ()


class Generator:
    """``program`` gives a text. ``wrong``: with one statement that cannot succeed."""

    def __init__(self, chance: random.Random, statements: int = 8, wrong: bool = False) -> None:
        self.chance = chance
        self.known: list[Known] = []
        self.number = 0
        self.depth = 0
        self.left = statements
        self.wrong = wrong
        self.functions: list[str] = []

    def program(self) -> str:
        functions = [self.function() for _ in range(self.chance.randint(0, 2))]
        lines = [*self.block(self.left), *functions]
        if self.wrong:
            lines.append(self.mistake())
        self.chance.shuffle(lines)
        return PRELUDE + "\n".join(lines) + "\n"

    def function(self) -> str:
        """A definition; it may call those before it."""
        name, known = f"f{len(self.functions)}", self.known
        self.known = [Known("a", "int"), Known("b", "float"), Known("A", "int[]")]
        with self.inside():
            lines = self.block(self.chance.randint(1, 3))
            lines += [f"o = {self.value('int')};", f"foreach x, i in A {{ p[i] = x + {self.value('int', 2)}; }}"]
            body = self.braces(lines)
        self.known = known
        self.functions.append(name)
        return f"(int o, int p[]) {name}(int a, float b, int A[]) {body}"

    def mistake(self) -> str:
        name = self.fresh()
        return self.chance.choice([
            f"int {name}[]; {name}[late(1)] = 1; {name}[1] = 2;",
            f"int {name}[]; foreach i in [0:3] {{ {name}[i %/ 2] = i; }}",
            f"int {name}[] = [1, 2]; trace({name}[late(2)]);",
            f"trace(never({self.value('int', 1)}));",
            f"int {name}[]; {name}[size({name})] = 1;",
            f"int {name}[]; {name}[0] = {name}[1]; {name}[1] = late({name}[0]);",
            f"trace({self.value('int', 1)} %/ (late(1) - 1));",
            f"S {name}; {name}.a = 1; S {name}x = {name}; trace({name}x.b);",
        ])  # fmt: skip

    # ── names ──────────────────────────────────────────────────────────────────────────────────────

    def fresh(self) -> str:
        self.number += 1
        return f"v{self.number}"

    def of_type(self, *types: str) -> list[Known]:
        return [one for one in self.known if one.type in types]

    def some(self, *types: str) -> Known | None:
        found = self.of_type(*types)
        return self.chance.choice(found) if found else None

    @contextmanager
    def inside(self) -> Any:
        """A block: its names are gone afterwards."""
        before = len(self.known)
        self.depth += 1
        yield
        self.depth -= 1
        del self.known[before:]

    # ── expressions ────────────────────────────────────────────────────────────────────────────────

    def value(self, type: str, depth: int = 3) -> str:
        choices: list[Callable[[int], str]] = [getattr(self, "_" + type)]
        if depth <= 0 or self.chance.random() < 0.25:
            return self.leaf(type)
        return choices[0](depth - 1)

    def leaf(self, type: str) -> str:
        found = self.some(type)
        if found is not None and self.chance.random() < 0.75:
            return found.name
        pick = self.chance.randint
        if type == "int":
            return str(pick(0, 20)) if pick(0, 4) else f"(-{pick(1, 9)})"
        if type == "float":
            return f"{pick(0, 40) / 4}" if pick(0, 9) else self.chance.choice(["1.5e-6", "2e18", "1e16", "inf"])
        if type == "string":
            return f'"{self.chance.choice("abcxyz")}{pick(0, 9)}"'
        return self.chance.choice(["true", "false"])

    def _int(self, depth: int) -> str:
        def value(type: str = "int") -> str:
            return self.value(type, depth)

        array, strings, struct = self.some("int[]"), self.some("string[string]"), self.some("S")
        matrix, bag = self.some("int[][]"), self.some("bag<int>")
        options: list[Callable[[], str]] = [
            lambda: f"{value()} {self.chance.choice('+-')} {value()}",
            lambda: f"({value()} * {value()} %% 997)",
            lambda: f"({value()}) %/ {self.chance.randint(1, 9)}",
            lambda: f"({value()} - {value()}) %% -{self.chance.randint(2, 9)}",
            lambda: f"-({value()})",
            lambda: f"strlen({value('string')})",
            lambda: f"{self.chance.choice(['max', 'min'])}({value()}, {value()})",
            lambda: f"late({value()})",
            lambda: self.chance.choice([
                f"add({value()})", f"add({value()}, c={value()})", f"add({value()}, {value()})", f"count({value()}, {value()}, 3)",
            ]),
            lambda: f"down({self.chance.randint(0, 4)}, {value()})",
            lambda: f"ternary({value('boolean')}, {value()}, {value()})",
            lambda: f"sum([{value()}, {value()}])",
            lambda: f"fill({self.chance.randint(0, 3)}, {value()})[0]",
        ]  # fmt: skip
        if array is not None:
            options += [lambda: f"size({array.name})", lambda: f"sum({array.name})"]
            if array.keys:
                options += [lambda: f"{array.name}[{self.key(array)}]"] * 3
        if strings is not None:
            options.append(lambda: f"size({strings.name})")
        if struct is not None:
            options += [lambda: f"{struct.name}.a", lambda: f"{struct.name}.c[2]", lambda: f"size({struct.name}.c)"]
        if matrix is not None:
            options += [lambda: f"{matrix.name}[0][1]", lambda: f"sum({matrix.name}[1])", lambda: f"size({matrix.name})"]
        if bag is not None:
            options += [lambda: f"size({bag.name})", lambda: f"sum({bag.name})"]
        return self.chance.choice(options)()

    def key(self, array: Known) -> str:
        key = str(self.chance.choice(array.keys))
        return key if self.chance.random() < 0.7 else f"{key} + late(0)"

    def _float(self, depth: int) -> str:
        def value(type: str = "float") -> str:
            return self.value(type, depth)

        struct = self.some("S")
        options: list[Callable[[], str]] = [
            lambda: f"({value()} {self.chance.choice('+-')} {value(self.chance.choice(['int', 'float']))})",
            lambda: f"{value('int')} / {self.chance.choice([2, 4, 8, 0.5])}",
            lambda: f"half({value(self.chance.choice(['int', 'float']))})",
            lambda: f"itof({value('int')})",
            lambda: f"{self.chance.randint(1, 3)} ** {self.chance.randint(0, 3)}",
            lambda: f"[{value('int')}, {value()}][0]",
            lambda: f"max({value()}, {value('int')})",
        ]
        if struct is not None:
            options.append(lambda: f"{struct.name}.b")
        return self.chance.choice(options)()

    def _string(self, depth: int) -> str:
        def value(type: str = "string") -> str:
            return self.value(type, depth)

        strings = self.some("string[string]")
        options: list[Callable[[], str]] = [
            lambda: f"{value()} + {value()}",
            lambda: f"{value()} + ({value(self.chance.choice(SCALARS))})",
            lambda: f"strcat({value()}, {value(self.chance.choice(SCALARS))})",
            lambda: f"later({value()})",
            lambda: f"kind({value(self.chance.choice(SCALARS[:3]))})",
            lambda: f'"d" / {self.leaf("string")}',
        ]
        if strings is not None and strings.keys:
            options += [lambda: f'{strings.name}["{self.chance.choice(strings.keys)}"]'] * 2
        return self.chance.choice(options)()

    def _boolean(self, depth: int) -> str:
        def value(type: str = "boolean") -> str:
            return self.value(type, depth)

        array = self.some("int[]")
        options: list[Callable[[], str]] = [
            lambda: f"({value('int')} {self.chance.choice(['<', '<=', '>', '>=', '==', '!='])} {value('int')})",
            lambda: f"({value('float')} {self.chance.choice(['<', '<=', '>', '>=', '==', '!='])} {value('int')})",
            lambda: f"({value()} {self.chance.choice(['&&', '||', '==', '!='])} {value()})",
            lambda: f"!({value()})",
            lambda: f"({value('string')} {self.chance.choice(['==', '!='])} {value('string')})",
        ]
        if array is not None:
            options.append(lambda: f"contains({array.name}, {value('int')})")
        return self.chance.choice(options)()

    # ── statements ─────────────────────────────────────────────────────────────────────────────────

    def block(self, count: int) -> list[str]:
        """Statements, each a text; some belong together."""
        lines: list[str] = []
        kinds = [getattr(self, name) for name in dir(self) if name.startswith("make_")]
        for _ in range(count):
            lines += self.chance.choice(kinds)() if self.depth < 3 else self.make_scalar()
        lines += self.prints()
        self.chance.shuffle(lines)
        return lines

    def braces(self, lines: list[str]) -> str:
        self.chance.shuffle(lines)
        return "{ " + " ".join(lines) + " }"

    def inner(self, *more: str) -> str:
        """A block with statements of its own, and those that are given."""
        with self.inside():
            return self.braces([*more, *self.block(self.chance.randint(0, 2))])

    def prints(self) -> list[str]:
        values = [self.value(self.chance.choice(SCALARS), 2) for _ in range(self.chance.randint(1, 3))]
        return [f"trace({', '.join(values)});"]

    def split(self, type: str, name: str, value: str) -> list[str]:
        """A declaration with its value, or both apart, or without the first."""
        which = self.chance.randint(0, 3)
        if which == 0:
            return [f"{type} {name};", f"{name} = {value};"]
        if which == 1 and type != "float":  # the type of the value would be that of the variable
            return [f"{name} = {value};"]
        return [f"{type} {name} = {value};"]

    def make_scalar(self) -> list[str]:
        type, name = self.chance.choice(SCALARS), self.fresh()
        lines = self.split(type, name, self.value(type))
        self.known.append(Known(name, type))
        return lines

    def make_literal_array(self) -> list[str]:
        name, count = self.fresh(), self.chance.randint(1, 4)
        lines = [f"int {name}[] = [{', '.join(self.value('int', 2) for _ in range(count))}];"]
        if self.chance.random() < 0.4:  # element by element
            lines = [f"int {name}[];"] + [f"{name}[{key}] = {self.value('int', 2)};" for key in range(count)]
        self.known.append(Known(name, "int[]", tuple(range(count))))
        return lines

    def make_loop_array(self) -> list[str]:
        name, last, shift = self.fresh(), self.chance.randint(0, 4), self.chance.randint(0, 5)
        index, key = self.fresh(), self.fresh()
        with self.inside():
            self.known += [Known(index, "int"), Known(key, "int")]
            body = self.inner(f"{name}[{key} + {shift}] = {self.value('int', 2)};")
        annotation = self.chance.choice(["", "", "@unroll=2 ", "@splitdegree=4 "])
        lines = [f"int {name}[];", f"{annotation}foreach {index}, {key} in [1:{last + 1}] {body}"]
        self.known.append(Known(name, "int[]", tuple(range(shift, shift + last + 1))))
        return lines

    def make_filtered_array(self) -> list[str]:
        source = self.some("int[]")
        if source is None:
            return self.make_literal_array()
        name, item, key = self.fresh(), self.fresh(), self.fresh()
        with self.inside():
            self.known += [Known(item, "int"), Known(key, "int")]
            condition, value = self.value("boolean", 2), self.value("int", 2)
            body = self.inner(f"if ({condition}) {{ {name}[{key} * 2] = {value}; }} else {self.inner(f'{name}[{key} * 2 + 1] = {item};')}")
        lines = [f"int {name}[];", f"foreach {item}, {key} in {source.name} {body}"]
        self.known.append(Known(name, "int[]"))
        return lines

    def make_recurrence(self) -> list[str]:
        name, last, index = self.fresh(), self.chance.randint(1, 5), self.fresh()
        with self.inside():
            self.known.append(Known(index, "int"))
            body = self.inner(f"{name}[{index}] = ({name}[{index} - 1] * 3 + {self.value('int', 1)}) %% 1009;")
        lines = [f"int {name}[];", f"{name}[0] = {self.value('int', 1)};", f"foreach {index} in [1:{last}] {body}"]
        self.known.append(Known(name, "int[]", tuple(range(last + 1))))
        return lines

    def make_array_elsewhere(self) -> list[str]:
        name, source = self.fresh(), self.some("int[]")
        matrix = self.some("int[][]")
        if self.chance.random() < 0.3 or source is None:
            count = self.chance.randint(0, 3)
            lines = self.split("int[]", name, f"fill({count}, {self.value('int', 2)})")
            self.known.append(Known(name, "int[]", tuple(range(count + 1))))
        elif matrix is not None and self.chance.random() < 0.5:
            lines = [f"int {name}[] = {matrix.name}[{self.chance.randint(0, 1)}];"]
            self.known.append(Known(name, "int[]", (0, 1)))
        else:
            lines = self.split("int[]", name, source.name)
            self.known.append(Known(name, "int[]", source.keys))
        return lines

    def make_matrix(self) -> list[str]:
        name, i, j = self.fresh(), self.fresh(), self.fresh()
        rows = self.chance.randint(1, 3)
        with self.inside():
            self.known.append(Known(i, "int"))
            if self.chance.random() < 0.4:
                body = self.inner(f"{name}[{i}] = fill({self.chance.randint(1, 3)}, {self.value('int', 2)});")
            else:
                with self.inside():
                    self.known.append(Known(j, "int"))
                    inner = self.inner(f"{name}[{i}][{j}] = {self.value('int', 2)};")
                body = self.inner(f"foreach {j} in [0:{i} + 1] {inner}")
        lines = [f"int {name}[][];", f"foreach {i} in [0:{rows}] {body}"]
        self.known.append(Known(name, "int[][]"))
        return lines

    def make_map(self) -> list[str]:
        name, keys = self.fresh(), self.chance.sample("abcdef", self.chance.randint(1, 4))
        if self.chance.random() < 0.5:
            pairs = ", ".join(f'"{key}": {self.value("string", 2)}' for key in keys)
            lines = [f"string {name}[string] = {{{pairs}}};"]
        else:
            lines = [f"string {name}[string];"] + [f'{name}["{key}" + ""] = {self.value("string", 2)};' for key in keys]
        self.known.append(Known(name, "string[string]", tuple(keys)))
        return lines

    def make_bag(self) -> list[str]:
        name, index = self.fresh(), self.fresh()
        lines = [f"bag<int> {name};"]
        lines += [f"{name} += {self.value('int', 2)};" for _ in range(self.chance.randint(0, 2))]
        source = self.some("int[]")
        if source is not None and self.chance.random() < 0.5:
            lines.append(f"{name} += {source.name};")
        with self.inside():
            self.known.append(Known(index, "int"))
            body = self.inner(f"{name} += {self.value('int', 2)};")
            lines.append(f"foreach {index} in [1:{self.chance.randint(0, 3)}] {body}")
        self.known.append(Known(name, "bag<int>"))
        return lines

    def make_struct(self) -> list[str]:
        name = self.fresh()
        other = self.some("S")
        which = self.chance.randint(0, 3)
        if which == 0:
            lines = [f"S {name};", f"{name}.a = {self.value('int', 2)};", f"{name}.b = {self.value('float', 2)};"]
            lines += [f"{name}.c[{key}] = {self.value('int', 1)};" for key in (1, 2)]
        elif which == 1 and other is not None:
            lines = self.split("S", name, other.name)
        elif which == 2:
            lines = [f"S {name} = S({self.value('int', 2)}, {self.value('float', 2)}, [1, 2, {self.value('int', 1)}]);"]
        else:
            lines = self.split("S", name, f"make({self.value('int', 2)})")
        self.known.append(Known(name, "S"))
        return lines

    def make_branches(self) -> list[str]:
        type, name = self.chance.choice(SCALARS), self.fresh()

        def branch() -> str:
            with self.inside():
                return self.inner(f"{name} = {self.value(type, 2)};")

        if self.chance.random() < 0.3:
            cases = "".join(f"case {label}: {branch()} " for label in self.chance.sample(range(-1, 4), 2))
            lines = [f"{type} {name};", f"switch (({self.value('int', 2)}) %% 4) {{ {cases} default: {branch()} }}"]
        elif self.chance.random() < 0.3:
            first, second = self.value("boolean", 2), self.value("boolean", 1)
            lines = [f"{type} {name};", f"if ({first}) {branch()} else if ({second}) {branch()} else {branch()}"]
        else:
            lines = [f"{type} {name};", f"if ({self.value('boolean', 2)}) {branch()} else {branch()}"]
        self.known.append(Known(name, type))
        return lines

    def make_two(self) -> list[str]:
        number, string = self.fresh(), self.fresh()
        call = f"two({self.value('int', 2)})"
        lines = self.chance.choice([
            [f"({number}, {string}) = {call};"], [f"{number}, {string} = {call};"], [f"(int {number}, string {string}) = {call};"],
            [f"int {number};", f"string {string};", f"({number}, {string}) = {call};"],
            [f"{number}, {string} = {self.value('int', 2)}, {self.value('string', 2)};"],
        ])  # fmt: skip
        self.known += [Known(number, "int"), Known(string, "string")]
        return lines

    def make_call_of_own(self) -> list[str]:
        source = self.some("int[]")
        if not self.functions or source is None:
            return self.make_scalar()
        number, array = self.fresh(), self.fresh()
        call = f"{self.chance.choice(self.functions)}({self.value('int', 2)}, {self.value('float', 2)}, {source.name})"
        lines = [f"({number}, {array}) = {call};"]
        if self.chance.random() < 0.5:
            lines = [f"int {array}[];", f"int {number};", f"{number}, {array} = {call};"]
        self.known += [Known(number, "int"), Known(array, "int[]", source.keys)]
        return lines

    def make_structs(self) -> list[str]:
        name, index, total = self.fresh(), self.fresh(), self.fresh()
        with self.inside():
            self.known.append(Known(index, "int"))
            one = f"{name}[{index}]"
            parts = [f"{one}.a = {self.value('int', 2)};", f"{one}.b = {self.value('float', 1)};", f"{one}.c[2] = {self.value('int', 1)};"]
            body = self.inner(*parts) if self.chance.random() < 0.5 else self.inner(f"{one} = make({self.value('int', 2)});")
        lines = [f"S {name}[];", f"foreach {index} in [0:{self.chance.randint(0, 2)}] {body}", f"int {total}[];"]
        lines.append(f"foreach s, k in {name} {{ {total}[k] = s.a + s.c[2]; trace(s.b, size(s.c)); }}")
        self.known.append(Known(total, "int[]", (0,)))
        return lines

    def make_wait(self) -> list[str]:
        type, name = self.chance.choice(SCALARS), self.fresh()
        items = [one.name for one in self.chance.sample(self.known, min(len(self.known), 2))] or ["1"]
        with self.inside():
            body = self.inner(f"{name} = {self.value(type, 2)};")
        lines = [f"{type} {name};", f"wait {self.chance.choice(['', 'deep '])}({', '.join(items)}) {body}"]
        self.known.append(Known(name, type))
        return lines

    def make_chain(self) -> list[str]:
        first, second = self.fresh(), self.fresh()
        text = f"int {first} = {self.value('int', 2)} => "
        self.known.append(Known(first, "int"))
        text += f"float {second} = {self.value('float', 2)} => "
        self.known.append(Known(second, "float"))
        with self.inside():
            end = self.chance.choice([f"trace({first}, {second});", "sleep(0.1) => trace(1);", self.inner(), f"{{ trace({first}); }}"])
        return [text + end]

    def make_for(self) -> list[str]:
        name, index, carried, following = self.fresh(), self.fresh(), self.fresh(), self.fresh()
        rounds = self.chance.randint(1, 4)
        start = self.value("int", 2)
        with self.inside():
            self.known += [Known(index, "int"), Known(carried, "int")]
            value = f"({carried} * 2 + {self.value('int', 1)}) %% 1009"
            by_body = self.chance.random() < 0.5
            assigned = f"{carried} = {value};" if by_body else f"int {following} = {value};"
            body = self.inner(assigned, f"{name}[{index}] = {carried};")
        updates = f"{index} = {index} + 1" + ("" if by_body else f", {carried} = {following}")
        lines = [f"int {name}[];", f"for (int {index} = 0, int {carried} = {start}; {index} < {rounds}; {updates}) {body}"]
        self.known.append(Known(name, "int[]", tuple(range(rounds))))
        return lines

    def make_iterate(self) -> list[str]:
        name, index = self.fresh(), self.fresh()
        rounds = self.chance.randint(0, 3)
        with self.inside():
            self.known.append(Known(index, "int"))
            body = self.inner(f"{name}[{index} + 1] = ({name}[{index}] + {self.value('int', 1)}) %% 1009;")
        lines = [f"int {name}[];", f"{name}[0] = {self.value('int', 1)};", f"iterate {index} {body} until ({index} == {rounds});"]
        self.known.append(Known(name, "int[]", tuple(range(rounds + 2))))
        return lines

    def make_block(self) -> list[str]:
        with self.inside():
            return [self.braces(self.block(self.chance.randint(1, 2)))]

    def make_nothing_but_prints(self) -> list[str]:
        source = self.some("int[]", "bag<int>")
        item = self.fresh()
        with self.inside():
            self.known.append(Known(item, "int"))
            return [f"foreach {item} in {source.name if source else '[1:3]'} {self.inner()}"]
