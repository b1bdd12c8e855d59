"""Requests of the file system as they travel."""

from __future__ import annotations

import re
from pathlib import Path
from types import NoneType

from amfs.fs.fuse_native import ANSWERS
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary import fs_works as w


def test_every_request_and_every_order_is_known() -> None:
    """One that is defined and not listed is refused by the node that gets it: 'there is no such request'."""
    for module, base, known in ((q, q.Request, q.AnyRequest), (w, w.WorkOrder, w.AnyWork)):
        defined = {kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, base) and kind is not base}
        assert defined == set(known.__args__)


def test_operations_of_mounts_are_the_same_in_c_and_here() -> None:
    """C asks by a name, and gets the answer in a form: each name is that of a request, and each answer has a form. Of what has none, C
    awaits none."""
    text = (Path(__file__).parents[2] / "csrc" / "fuse" / "fuse_slow.c").read_text(encoding="utf-8")
    asked = set(re.findall(r'\[FUSE_OP_\w+\] = "(\w+)"', text))
    assert len(asked) > 20 and asked <= q.BY_NAME.keys()
    assert ANSWERS.keys() <= asked
    assert all(q.answer_type(q.BY_NAME[name]) is NoneType for name in asked - ANSWERS.keys())
