"""The mapper that asks a program: ext."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from amfs.swift.formats import text_k
from amfs.swift.mappers.lists import listed
from amfs.swift.mappers.parameters import Parameters, file_names, files_in
from amfs.swift.mapping import Mapped, Path
from amfs.swift.patterns import parse_path
from amfs.swift.requests import Execute, Executed, Present, Request
from amfs.swift.types import Type


def external(given: Mapping[str, Any], type: Type, name: str, is_input: bool) -> Generator[Request, Any, Mapped]:
    """The program gets the other parameters as ``-key value``, and prints lines ``[2].field filename``, or ``$ filename``."""
    parameters = Parameters("ext", given)
    program = parameters.text("exec") or parameters.needed("exec")
    words, inputs = [program], []
    for key, value in given.items():
        if key != "exec":
            shown = " ".join(one for _, one in file_names(value)) if isinstance(value, dict | list) else text_k(value)
            words += [f"-{key}", shown]
            inputs += files_in(value)
    if "/" not in program and (yield Present((program,))):
        words[0] = f"./{program}"
    # A shell starts it: it also runs scripts without a first line that names their interpreter.
    done: Executed = yield Execute(("sh", "-c", '"$0" "$@"', *words), inputs=tuple(inputs))
    if done.status:
        said = done.stderr.decode(errors="replace").strip()
        parameters.fail(f"{program} ended with exit status {done.status}{': ' + said[-200:] if said else ''}")
    names: list[tuple[Path, str]] = []
    for line in done.stdout.decode(errors="surrogateescape").splitlines():
        if not line.strip():
            continue
        where, _, file = line.strip().partition(" ")
        path: Path | None = () if where == "$" else parse_path(where)
        if path is None or not file.strip():
            parameters.fail(f"{program} printed {line[:80]!r}, and a line is '[index].field filename' or '$ filename'")
        names.append((path, file.strip()))
    return listed(parameters.mapper, names, is_input)
