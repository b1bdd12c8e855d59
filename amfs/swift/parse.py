"""From the text of a script, and of what it imports, to a program. Must not know: files; the caller loads them."""

from __future__ import annotations

import re
from collections.abc import Callable

from amfs.swift.library_t.unix import UNIX
from amfs.swift.parse_k import SYNTAX_K, BuilderK
from amfs.swift.parse_t import SYNTAX, BuilderT, Import
from amfs.swift.preprocess import preprocess
from amfs.swift.source import At, Mistake, Source, refuse, suggestion
from amfs.swift.tree import Block, Program

#: Name of an imported or included file, "/" between folders, as written -> its text, or None: there is no such file.
Load = Callable[[str], Source | None]

#: Modules of Swift/T's library. All of the library is always there, so importing one does nothing.
_MODULES = """assert blob builtins files io json julia launch location math matrix python R random stats string sys tcl unix"""
#: Names of modules that have nothing here: a file of the user's with that name is read instead.
_EMPTY = """apps async bag coasters container data debug dir EQPy EQR error gemtc jni mpe plugin pragmas sqlite table turbine types"""
_FULL = frozenset(_MODULES.split())
MODULES = _FULL | frozenset(_EMPTY.split())
#: The library of Swift/K, which is always there, too.
_STANDARD = re.compile(r"stdlib(\.v?[0-9.]+)?")


def parse(language: str, source: Source, load: Load) -> Program:
    """``language``: "swift-t" or "swift-k". Raises ``WorkflowError``, with what is wrong."""
    try:
        return _Parser(language, load).program(source)
    except Mistake as mistake:
        raise refuse([mistake]) from None


class _Parser:
    def __init__(self, language: str, load: Load) -> None:
        self.language = language
        self.load = load
        self.seen: set[str] = set()
        self.read: set[str] = set()

    def program(self, source: Source) -> Program:
        whole = At(source, 0, len(source.text))
        program = Program(self.language, whole, [], [], Block(whole, []))
        self.add(source, program)
        return program

    def add(self, source: Source, program: Program) -> None:
        """One text, after all that it imports: a second time nothing."""
        if self.language == "swift-t":
            source = preprocess(source, self.load)
        builder = BuilderK(source) if self.language == "swift-k" else BuilderT(source)
        statements = (SYNTAX_K if self.language == "swift-k" else SYNTAX).parse(builder, "start")
        for wanted in builder.imports:
            self.take_in(wanted, program)
        program.functions += builder.functions
        program.types += builder.types
        program.remarks += builder.remarks
        program.usage = builder.command_line.usage(source.name) or program.usage
        program.body.statements += statements

    def take_in(self, wanted: Import, program: Program) -> None:
        if wanted.name in self.seen:
            return
        self.seen.add(wanted.name)
        names = [wanted.name + ".swift", wanted.name] if not wanted.name.endswith(".swift") else [wanted.name]
        if not wanted.quoted and wanted.name == "unix":
            self.add(Source("unix.swift", UNIX), program)
            return
        if not wanted.quoted and wanted.name in _FULL:
            return
        source = next((found for name in names if (found := self.load(name)) is not None), None)
        if source is not None:
            if source.name not in self.read:  # the same file by another spelling
                self.read.add(source.name)
                self.add(source, program)
        elif wanted.name not in MODULES and not (self.language == "swift-k" and _STANDARD.fullmatch(wanted.name)):
            near = suggestion(wanted.name, MODULES, "import {};") if self.language == "swift-t" and not wanted.quoted else ""
            hint = "it is searched beside the script, then in the directories of SWIFT_PATH and SWIFT_LIB"
            raise Mistake(wanted.at, f"there is no file {names[0]!r} to import", near or hint)
