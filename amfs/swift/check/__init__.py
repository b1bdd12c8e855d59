"""From a tree to a checked program: names, types, calls, scopes, and what each statement may write; or all mistakes at once."""

from __future__ import annotations

from amfs.swift.builtins import Library
from amfs.swift.check.assignments import Assignments
from amfs.swift.check.deadlocks import Deadlocks
from amfs.swift.check.expressions import Expressions
from amfs.swift.check.names import Functions, Types
from amfs.swift.check.statements import Statements
from amfs.swift.depth import LEVELS_MAX, deep
from amfs.swift.source import Mistake, refuse
from amfs.swift.tree import Program


def check(program: Program, library: Library) -> None:
    """Fills in what the tree calls *checked*. Raises ``WorkflowError`` with all mistakes."""
    types = Types(program, library)
    mistakes = types.mistakes
    functions = Functions(program, library, types)
    expressions = Expressions(program.language, library, types, functions, mistakes)
    statements = Statements(program, types, expressions, mistakes)

    def work() -> None:
        types.check_all()
        statements.program(program)
        if not mistakes:
            assignments = Assignments(program, statements, expressions.reads, mistakes)
            assignments.check()
        if not mistakes:
            Deadlocks(program, assignments.of_loops, mistakes).check()

    try:
        deep(work)
    except RecursionError:
        mistakes.append(Mistake(statements.place, f"the program nests too deeply here: more than {LEVELS_MAX} levels"))
    if mistakes:
        raise refuse(mistakes)
