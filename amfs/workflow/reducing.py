"""The workflow that reduces files of a session to one. Pure.

The engine's reduction trees (``workflow.reduction``) combine what tasks have made. So ordinary tasks take the first steps, on neighbouring
files and where most of their bytes are; one reduction combines what they make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amfs.workflow.reduction import IN, OUT
from amfs.workflow.workflow import Task, Workflow


def plan(
    inputs: Sequence[str], sizes: Mapping[str, int], places: Mapping[str, Sequence[int]], output: str, command: Sequence[str], arity: int
) -> Workflow:
    """``command`` has ``{in}`` and ``{out}``. ``sizes`` and ``places`` of every input; all names as tasks have them."""
    groups = [inputs[start : start + arity] for start in range(0, len(inputs), arity)]
    alone = len(groups) == 1
    tasks = []
    for number, group in enumerate(groups):
        made = output if alone else f"step-{number}"
        node = _heaviest(group, sizes, places)
        words = _filled(command, group, made) if alone or len(group) > 1 else ("cp", "--", group[0], made)
        tasks.append(
            Task(f"step-{number}", words, inputs=tuple(group), outputs=(made,), label="reduce", node=node, node_soft=node >= 0)
        )
    if not alone:
        steps = tuple(task.outputs[0] for task in tasks)
        tasks.append(Task("reduce", tuple(command), inputs=steps, outputs=(output,), reduce=arity, label="reduce"))
    return Workflow(tasks, name="reduce")


def _filled(command: Sequence[str], inputs: Sequence[str], output: str) -> tuple[str, ...]:
    words: list[str] = []
    for word in command:
        words.extend(inputs if word == IN else [word.replace(OUT, output)])
    return tuple(words)


def _heaviest(group: Sequence[str], sizes: Mapping[str, int], places: Mapping[str, Sequence[int]]) -> int:
    held: dict[int, int] = {}
    for name in group:
        for node in places[name]:
            held[node] = held.get(node, 0) + sizes[name] + 1
    return max(held, key=lambda node: (held[node], -node), default=-1)
