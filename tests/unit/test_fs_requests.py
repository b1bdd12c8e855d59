"""Requests of the file system as they travel."""

from __future__ import annotations

from amfs.vocabulary import fs_requests as q
from amfs.vocabulary import fs_works as w


def test_every_request_and_every_order_is_known() -> None:
    """One that is defined and not listed is refused by the node that gets it: 'there is no such request'."""
    for module, base, known in ((q, q.Request, q.AnyRequest), (w, w.WorkOrder, w.AnyWork)):
        defined = {kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, base) and kind is not base}
        assert defined == set(known.__args__)
