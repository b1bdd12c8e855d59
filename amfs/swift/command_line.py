"""``arguments(…)``, ``flags(…)`` and the parameters of ``main`` in Swift/T: variables that the command line of a script fills.

They become declarations that ask for their value by argp and argv. Must not know: grammars, the meaning of names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amfs.swift.source import At, Mistake
from amfs.swift.syntax import Documented, Named, PlainCall
from amfs.swift.tree import Call, Declare, Evaluate, Expression, Formal, Literal, Mapping, Name, Statement, TypeName

#: By type: the function that makes the value from a word of the command line, and Python's types of a default.
CONVERSIONS: dict[str, tuple[str, tuple[type, ...]]] = {
    "int": ("string2int", (int,)),
    "float": ("string2float", (int, float)),
    "string": ("", (str,)),
    "boolean": ("string2boolean", (bool,)),
}
#: Positional arguments may be files, too: those that the program reads, and those that it makes.
READ, MADE = ("input",), ("file", "output")
HELP = ("h", "help")


def is_declaration(call: PlainCall) -> bool:
    """``arguments`` and ``flags`` are names like any others where they declare nothing."""
    return call.name in ("arguments", "flags") and any(isinstance(one, Formal | Documented) for one in call.items.items)


class CommandLine:
    """The flags and parameters that a script declares. ``statements``: the statements that declare its variables."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self._arguments: list[str] = []  # lines of the usage
        self._synopsis: list[str] = []
        self._flags: list[str] = []
        self._description = ""
        self._positional: At | None = None

    def declare(self, call: PlainCall) -> None:
        """Raises ``Mistake``."""
        if call.name == "flags":
            self._declare_flags(call)
        else:
            self.statements += self.positional(call.at, call.items.items)

    def positional(self, at: At, items: Sequence[Any]) -> list[Statement]:
        """One variable for each plain argument, in their order. Raises ``Mistake``."""
        if self._positional is not None:
            hint = f"the first time is at {self._positional}"
            raise Mistake(at, "the arguments of the command line are declared a second time", hint)
        self._positional = at
        found: list[Statement] = []
        optional = ""
        for formal, text in self._formals(items):
            if formal.default is None and optional:
                raise Mistake(formal.at, f"{formal.name!r} has no default, and it stands after {optional!r}, which has one")
            optional = formal.name if formal.default is not None else ""
            found.append(self._variable(formal, "argp", len(found) + 1))
            self._synopsis.append(f"[{formal.name}]" if optional else formal.name)
            self._tell(formal.name, formal, text)
        return found

    def usage(self, script: str) -> str:
        """The text for -h; "" if the script declares nothing."""
        if not self._synopsis:
            return ""
        lines = [f"usage: {script} {' '.join(self._synopsis)}", *([self._description] if self._description else []), *self._arguments]
        return "\n".join(lines) + "\n"

    # ── parts ──────────────────────────────────────────────────────────────────────────────────────

    def _declare_flags(self, call: PlainCall) -> None:
        for formal, text in self._formals(call.items.items):
            name = formal.name
            if name in HELP:
                raise Mistake(formal.at, f"-{name} prints the usage of a script, so it cannot be a flag")
            if formal.type_name.name != "boolean":
                self.statements.append(self._variable(formal, "argv", name))
            elif formal.default is not None:
                raise Mistake(formal.default.at, f"the flag {name!r} is true where it is given, and false elsewhere: it has no default")
            else:
                given = Call(formal.at, "argv_contains", [Literal(formal.at, name)])
                self.statements.append(Declare(formal.at, formal.type_name, name, value=given))
            shown = f"-{name}" if formal.type_name.name == "boolean" else f"-{name}={formal.type_name.name}"
            required = formal.type_name.name != "boolean" and formal.default is None
            self._synopsis.append(shown if required else f"[{shown}]")
            self._flags.append(name)
            self._tell(shown, formal, text)

    def accepting(self, at: At) -> list[Statement]:
        """A script with flags refuses all others."""
        if not self._flags:
            return []
        return [Evaluate(at, Call(at, "argv_accept", [Literal(at, name) for name in self._flags]))]

    def _formals(self, items: Sequence[Any]) -> list[tuple[Formal, str]]:
        found = []
        for item in items:
            text = ""
            if isinstance(item, Documented):
                item, text = item.item, item.text
            if isinstance(item, Name) and item.name == "description" and text:
                self._description = text
            elif isinstance(item, Formal) and not item.variable and item.type_name.name in (*CONVERSIONS, *READ, *MADE):
                found.append((item, text))
            elif isinstance(item, Formal) and not item.variable:
                types = ", ".join((*CONVERSIONS, *READ, *MADE))
                hint = "the type is called boolean" if item.type_name.name == "bool" else f"there are {types}"
                raise Mistake(item.type_name.at, "a variable of the command line cannot be of this type", hint)
            else:
                raise Mistake(item.at, "a type and a name are expected here", f"'int {item.name} = …'" if isinstance(item, Named) else "")
        return found

    def _variable(self, formal: Formal, function: str, key: int | str) -> Declare:
        """``T name = conversion(function(key, default));``"""
        at, type_name, kind = formal.at, formal.type_name, formal.type_name.name
        word: Expression = Call(at, function, [Literal(at, key)])
        if formal.default is not None:
            assert isinstance(word, Call)
            word.arguments.append(self._default(formal, formal.default))
        if kind in (*MADE, *READ):
            if function == "argv":
                raise Mistake(type_name.at, "a flag cannot be a file", "declare a string, and give it to input(…)")
            type_name = TypeName(type_name.at, "file")
            if kind in MADE:
                return Declare(at, type_name, formal.name, Mapping(at, "", word))
            return Declare(at, type_name, formal.name, value=Call(at, "input", [word]))
        conversion = CONVERSIONS[kind][0]
        return Declare(at, type_name, formal.name, value=Call(at, conversion, [word]) if conversion else word)

    def _default(self, formal: Formal, given: Expression) -> Expression:
        """As the word of a command line that stands for it."""
        types = CONVERSIONS.get(formal.type_name.name, ("", (str,)))[1]
        if not isinstance(given, Literal) or type(given.value) not in types:
            raise Mistake(given.at, f"the default of {formal.name!r} is written out, as a value of type {formal.type_name.name}")
        value = given.value
        return Literal(given.at, str(value).lower() if isinstance(value, bool) else value if isinstance(value, str) else repr(value))

    def _tell(self, shown: str, formal: Formal, text: str) -> None:
        default = f" (default: {formal.default.value})" if isinstance(formal.default, Literal) else ""
        self._arguments.append(f"  {shown:<20} {text}{default}".rstrip())
