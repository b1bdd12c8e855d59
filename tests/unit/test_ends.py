"""The queue from threads to the poll loop: nothing is lost, and the descriptor can be read exactly while something is in it."""

from __future__ import annotations

import select
import threading

from amfs.node.ends import Ends


def readable(ends: Ends[int]) -> bool:
    return bool(select.select([ends.fd], [], [], 0)[0])


def test_the_descriptor_tells_whether_something_has_ended() -> None:
    ends: Ends[int] = Ends()
    try:
        assert ends.take() == [] and not readable(ends)
        for number in range(3):
            ends.put(number)
        assert readable(ends) and ends.take() == [0, 1, 2]
        assert not readable(ends) and ends.take() == []
    finally:
        ends.close()


def test_nothing_is_lost_and_no_wake_up_is_left() -> None:
    ends: Ends[int] = Ends()
    try:

        def put(first: int) -> None:
            for number in range(first, first + 2000):
                ends.put(number)

        threads = [threading.Thread(target=put, args=(first,)) for first in (0, 2000, 4000)]
        for thread in threads:
            thread.start()
        taken: list[int] = []
        while len(taken) < 6000:
            select.select([ends.fd], [], [])
            taken += ends.take()
        for thread in threads:
            thread.join()
        assert sorted(taken) == list(range(6000)) and not readable(ends)
    finally:
        ends.close()
