"""Order of tasks by what they wait for, on plain numbers: a stable topological order, and cycles as short paths. Pure.

Nothing here recurses: a chain of a million tasks is an ordinary workflow.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable

#: The tasks that a task waits for, by index. May repeat and may include the task itself (ignored here).
Producers = Callable[[int], Iterable[int]]


def topological(count: int, producers: Producers) -> array[int] | None:
    """An order of 0..count-1 in which every task comes after its producers; None if there is a cycle.

    Stable: tasks keep their places in the list except that a task's missing producers are drawn forward to just before it.
    """
    order = array("I")
    state = bytearray(count)  # 0 untouched, 1 being placed, 2 placed
    for start in range(count):
        if state[start]:
            continue
        state[start] = 1
        stack = [(start, iter(producers(start)))]
        while stack:
            task, rest = stack[-1]
            for producer in rest:
                if state[producer] == 2 or producer == task:
                    continue
                if state[producer] == 1:
                    return None
                state[producer] = 1
                stack.append((producer, iter(producers(producer))))
                break
            else:
                stack.pop()
                state[task] = 2
                order.append(task)
    return order


def cycles(count: int, producers: Producers) -> list[list[int]]:
    """One short cycle for every knot of tasks that wait for each other.

    Each is a list of indices in the order of the data: every task makes something that the next one reads, and the last something that
    the first reads. Starts at the knot's lowest index. Tasks that read what they write themselves are not reported.
    """
    found = [_shortest_cycle(min(knot), set(knot), producers) for knot in _knots(count, producers)]
    return sorted(found)


def _knots(count: int, producers: Producers) -> list[list[int]]:
    """Strongly connected components of more than one task (Tarjan, with an explicit stack)."""
    unseen = count
    number = array("q", [-1]) * count  # order of discovery; ``unseen`` once the component is closed
    low = array("q", [0]) * count
    open_tasks: list[int] = []
    clock = 0
    knots = []
    for start in range(count):
        if number[start] != -1:
            continue
        number[start] = low[start] = clock
        clock += 1
        open_tasks.append(start)
        stack = [(start, iter(producers(start)))]
        while stack:
            task, rest = stack[-1]
            for producer in rest:
                if number[producer] == -1:
                    number[producer] = low[producer] = clock
                    clock += 1
                    open_tasks.append(producer)
                    stack.append((producer, iter(producers(producer))))
                    break
                if number[producer] != unseen and number[producer] < low[task]:
                    low[task] = number[producer]
            else:
                stack.pop()
                if stack and low[task] < low[stack[-1][0]]:
                    low[stack[-1][0]] = low[task]
                if low[task] == number[task]:
                    at = len(open_tasks) - 1
                    while open_tasks[at] != task:
                        at -= 1
                    knot = open_tasks[at:]
                    del open_tasks[at:]
                    for member in knot:
                        number[member] = unseen
                    if len(knot) > 1:
                        knots.append(knot)
    return knots


def _shortest_cycle(start: int, knot: set[int], producers: Producers) -> list[int]:
    """Breadth first from ``start`` against the data until ``start`` comes round again."""
    came_from: dict[int, int] = {}
    queue = deque([start])
    while queue:
        task = queue.popleft()
        for producer in producers(task):
            if producer == start and task != start:
                path = [start]
                while task != start:
                    path.append(task)
                    task = came_from[task]
                return path
            if producer in knot and producer not in came_from and producer != start:
                came_from[producer] = task
                queue.append(producer)
    raise AssertionError("every task of a knot lies on a cycle")
