"""Costs of loading and checking a task list: seconds, and bytes a task. ``python -m amfs.bench.loading FILE``.

A process of its own, because memory that Python has freed once is not given back and would hide the growth. The growth is that of the peak,
so it includes memory that is needed only while loading.
"""

from __future__ import annotations

import resource
import sys
import time


def measure(path: str) -> tuple[float, int, int]:
    """(seconds, bytes of peak growth, tasks) for loading and checking the list at ``path``."""
    from amfs.translate.detect import load_checked
    from amfs.translate.place import HostPlace

    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    workflow, _plan = load_checked(path, HostPlace())
    seconds = time.perf_counter() - started
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    return seconds, grown_kib * 1024, len(workflow.tasks)


if __name__ == "__main__":
    print(*measure(sys.argv[1]))
