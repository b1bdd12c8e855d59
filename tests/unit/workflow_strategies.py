"""Hypothesis strategies for words, tasks and workflows that every format must be able to say."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from hypothesis import strategies as st

from amfs.workflow.workflow import DeclaredState, Task, Workflow

#: Characters that mean something to some parser, bytes that are not UTF-8 (as surrogateescape keeps them), and the rest of Unicode.
_LETTERS = st.one_of(
    st.sampled_from(list("abcxyz019_./-=:,%+@ '\"\\$`#~*?[](){}<>|&;!^\t\n\r\v\f\x1c\x1f\x7f\x85\u00a0\u2028\ufeff\udc80\udcff")),
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
)
OPTION_WORDS = [
    "-a", "-b", "-i", "-o", "--", "-env", "-keep", "-unstaged", "-blind", "-x", "-", "-if", "-of", "-1", "#", "#amfs", "TaskID", "Shared",
]  # fmt: skip


def _storable(text: str) -> bool:
    """Whether surrogates in ``text`` are just what reading its bytes would give (no two of them make a character)."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") == text


words = st.one_of(
    st.sampled_from(OPTION_WORDS),
    st.text("abc/.-", min_size=1, max_size=6),
    st.lists(_LETTERS, min_size=1, max_size=8).map("".join).filter(_storable),  # st.text leaves surrogates out
)
any_words = st.one_of(st.just(""), words)
env_entries = st.builds("{}={}".format, st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True), any_words).filter(_storable)


@st.composite
def tasks(draw: st.DrawFn, names: st.SearchStrategy[str] = words) -> Task:
    """Any task that passes the checks of a task by itself. Inputs and outputs may leave out stdin and the like."""
    task_id = draw(words)
    if draw(st.integers(0, 7)) == 0:  # it declares no files
        cwd = draw(st.sampled_from(["", "/", "/sub", "/a b/c"]))
        return Task(task_id, (draw(words), *draw(st.lists(any_words, max_size=5))), cwd=cwd, blind=True, retries=draw(st.integers(-1, 9)))
    inputs = draw(st.lists(names, max_size=4, unique=True))
    outputs = draw(st.lists(names, max_size=4, unique=True))
    argv = [draw(words), *draw(st.lists(any_words, max_size=5))]
    reduce = 0
    if inputs and len(outputs) == 1 and draw(st.booleans()):
        reduce = draw(st.integers(2, 100))
        argv += ["{in}", "-o{out}"]
    node = draw(st.integers(-1, 5))
    plain_stdout = "" if reduce else draw(st.one_of(st.just(""), names))
    return Task(
        id=task_id,
        argv=tuple(argv),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        stdin=draw(st.one_of(st.just(""), names)),
        stdout=plain_stdout,
        stderr=draw(st.sampled_from(["", plain_stdout])),
        env=tuple(draw(st.lists(env_entries, max_size=3))),
        cwd=draw(st.sampled_from(["", "sub", "a b/c"])),
        cores=draw(st.integers(1, 64)),
        memory=draw(st.integers(0, 1 << 62)),
        time_limit=draw(st.one_of(st.just(0.0), st.floats(0, 1e6, allow_nan=False))),
        retries=draw(st.integers(-1, 9)),
        priority=draw(st.integers(-100, 100)),
        label=draw(any_words),
        node=node,
        node_soft=node >= 0 and draw(st.booleans()),
        reduce=reduce,
        keep=tuple(kept := draw(st.lists(st.sampled_from(outputs), unique=True)) if outputs else []),
        scratch=tuple(name for name in outputs if name not in kept and draw(st.booleans())),
        after=tuple(name for name in draw(st.lists(words, max_size=3, unique=True)) if name != task_id),
        runtime=draw(st.one_of(st.none(), st.just(0.0), st.floats(0, 1e6, allow_nan=False))),
        staged=draw(st.booleans()),
    )


workflows = st.builds(
    Workflow,
    st.lists(tasks(), max_size=5),
    name=words,
    files=st.dictionaries(words, st.sampled_from(DeclaredState), max_size=4),
    sizes=st.dictionaries(words, st.integers(0, 10**18 - 1), max_size=4),
    paths=st.dictionaries(words, words, max_size=4),
)


def without_lines(workflow: Workflow) -> tuple[object, ...]:
    """The parts that translation must keep: all but the places in the text."""
    tasks = [msgspec.structs.replace(task, line=0) for task in workflow.tasks]
    return tasks, workflow.name, workflow.files, workflow.sizes, workflow.paths


# ── documents ──────────────────────────────────────────────────────────────────────────────────────

_ODD: tuple[Any, ...] = (None, 0, -1, "", "x", [], ["x"], {}, {"x": "y"}, [[]], [{}], [None], True, 1.5)


def _paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found += _paths(inner, (*at, key))
    return found


@st.composite
def damaged(draw: st.DrawFn, document: Any, *odd: Any) -> Any:
    """A copy of a document in which one to three values, wherever they stand, are what nobody expects there."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(_paths(document)))
        holder = document
        for key in way:
            holder = holder[key]
        holder[last] = copy.deepcopy(draw(st.sampled_from(_ODD + odd)))
    return document
