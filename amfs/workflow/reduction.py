"""Built-in reduction (AME §6 ran mImgtbl and mConcatFit so): many files combined by an associative command, as a tree. Pure.

The tree keeps the order of the inputs, so an associative command is enough; it need not be commutative. Each step combines up to ``arity``
neighbours. It prefers the node that holds most of their bytes, so most data does not move, and the rest moves as partial results.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from amfs.vocabulary import messages as m
from amfs.vocabulary.records import pack_body, unpack_body

IN, OUT = "{in}", "{out}"
PARTS = ".amfs-reduce/"  # where the results of partial tasks are, by reduction and partial task


def expand(body: bytes, inputs: Sequence[str], output: str) -> bytes:
    """``body`` with the word ``{in}`` replaced by the inputs (several words) and ``{out}`` by the output."""
    program, argv, rest = unpack_body(body)
    words: list[str] = []
    for word in argv:
        if word == IN:
            words.extend(inputs)
        else:
            words.append(word.replace(OUT, output))
    return pack_body(program, words, **rest)  # type: ignore[arg-type]


def lost(run: int, name: str, out: Mapping[int, Collection[int]]) -> list[tuple[int, m.PartLost]]:
    """Messages that this file (without the run's scope) is nowhere, if it is a partial result: only the dispatcher of a reduction
    knows its partial tasks. ``out``: the tasks that each dispatcher has."""
    root, _, part = name.removeprefix(PARTS).partition("/")
    if not (name.startswith(PARTS) and root.isdigit() and part.isdigit()):
        return []
    return [(dispatcher, m.PartLost(run, int(root), -int(part))) for dispatcher, tasks in out.items() if int(root) in tasks]


def plan(spec: m.TaskSpec, files: Sequence[m.FileAt], scope: str, first_tid: int) -> tuple[list[m.TaskSpec], m.TaskSpec]:
    """The tasks of the tree below its root, leaves first, and the root, which keeps the id and the outputs of ``spec``.

    ``files`` says where each input is, in the order of the inputs. Partial tasks get ids ``first_tid``, ``first_tid - 1``, …
    """
    assert spec.options is not None and spec.options.reduce >= 2
    arity = spec.options.reduce
    cut = len(scope)
    level = [(at.name, at.size, at.holders) for at in files]
    partial: list[m.TaskSpec] = []
    while len(level) > arity:
        above: list[tuple[str, int, tuple[int, ...]]] = []
        for start in range(0, len(level), arity):
            part = level[start : start + arity]
            if len(part) == 1:
                above.append(part[0])
                continue
            node = _heaviest(part)
            tid = first_tid - len(partial)
            name = f"{scope}{PARTS}{spec.tid}/{-tid}"
            names = tuple(name for name, _, _ in part)
            partial.append(
                m.TaskSpec(
                    tid,
                    expand(spec.body, [n[cut:] for n in names], name[cut:]),
                    inputs=names,
                    shared=spec.shared,
                    outputs=(name,),
                    retentions=(m.retention(1),),
                    options=_with(spec.options, node),
                    origin=spec.origin,
                )
            )
            above.append((name, sum(size for _, size, _ in part), (node,) if node >= 0 else ()))
        level = above
    names = tuple(name for name, _, _ in level)
    root = m.TaskSpec(
        spec.tid,
        expand(spec.body, [n[cut:] for n in names], spec.outputs[0][cut:] if spec.outputs else ""),
        inputs=names,
        shared=spec.shared,
        outputs=spec.outputs,
        retentions=spec.retentions,
        options=_with(spec.options, _heaviest(level)),
        attempt=spec.attempt,
        origin=spec.origin,
    )
    return partial, root


def _heaviest(part: Sequence[tuple[str, int, tuple[int, ...]]]) -> int:
    held: dict[int, int] = {}
    for _, size, holders in part:
        for holder in holders:
            held[holder] = held.get(holder, 0) + size + 1
    return max(held, key=lambda node: (held[node], -node), default=-1)


def _with(options: m.Options, node: int) -> m.Options:
    """The task's own options, not a reduction any more, and a wish for ``node`` unless the user pinned it."""
    if options.pin >= 0:
        node, hard = options.pin, options.pin_hard
    else:
        hard = False
    return msgspec.structs.replace(options, pin=node, pin_hard=hard, reduce=0)
