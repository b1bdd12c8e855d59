"""``amfs bench costs``: measures what ``bench.costs`` describes, on this machine, with the parts that a node is made of."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from amfs.bench.costs import Costs
from amfs.bench.dispatch import LARGE_BYTES, Bench, pair_lines, work_parent
from amfs.bench.echo import round_trip_seconds
from amfs.bench.machines import machine_seconds
from amfs.bench.transfer import fetch_seconds
from amfs.net import wire
from amfs.net.link import Packet
from amfs.vocabulary import messages as m

_PAIRS = 5_000
_TURNS = 3


def measure_costs(say: Callable[[str], None] = lambda text: None) -> Costs:
    """Measure everything, medians of three. Raises AmfsError when something cannot be measured."""
    with (
        tempfile.TemporaryDirectory(prefix="amfs-bench-", dir=work_parent(), ignore_cleanup_errors=True) as work,
        tempfile.TemporaryDirectory(prefix="amfs-bench-", dir="/tmp", ignore_cleanup_errors=True) as short,  # a socket lies in it
    ):
        bench = Bench(Path(work), quick=False)
        say("engine, whole")
        engine_us = median(lambda: engine_cpu_us(bench))
        say("engine, machine by machine")
        turns = [machine_seconds(_PAIRS) for _ in range(_TURNS)]
        machine_us = {name: statistics.median(turn[name] for turn in turns) / (2 * _PAIRS) * 1e6 for name in turns[0]}
        say("messages")
        message_us = median(message_cost_us)
        latency_s = {kind: statistics.median(round_trip_seconds(Path(short), kind, 2_000)) / 2 for kind in ("ipc", "tcp")}
        say(f"one way over ipc {latency_s['ipc'] * 1e6:.0f} µs, over tcp {latency_s['tcp'] * 1e6:.0f} µs; the second is kept")
        say("bandwidth")
        bandwidth = LARGE_BYTES / statistics.median(fetch_seconds(work, LARGE_BYTES, 7))
        say("processes and files")
        spawn_us = median(lambda: bench.vforkloop(5_000, 1, bench.programs["noop"]) / 5_000 * 1e6)
        file_us = median(lambda: small_file_us(Path(work)))
    others = machine_us["submitter"] + machine_us["dispatcher"] + machine_us["fls"]
    return Costs(
        # the worker's share is what remains: its machine, and the loop, the launcher and the store, which serve it
        task_us_worker=round(max(machine_us["worker"], engine_us - others), 3),
        task_us_dispatcher=round(machine_us["dispatcher"], 3),
        task_us_submitter=round(machine_us["submitter"], 3),
        task_us_fls=round(machine_us["fls"], 3),
        message_us=round(message_us, 3),
        latency_s=round(latency_s["tcp"], 9),
        bandwidth_bytes_s=round(bandwidth),
        spawn_us=round(spawn_us, 3),
        file_us=round(file_us, 3),
    )


def median(once: Callable[[], float]) -> float:
    return statistics.median(once() for _ in range(_TURNS))


def engine_cpu_us(bench: Bench) -> float:
    """CPU of ``amfs run`` for each further task of a list of pairs, without the tasks' own: the start-up is taken off."""
    short, long = 50, _PAIRS
    start = bench.run_list(pair_lines(bench, short)).cpu_s
    whole = bench.run_list(pair_lines(bench, long)).cpu_s
    return max(0.0, whole - start) / (2 * (long - short)) * 1e6


def message_cost_us() -> float:
    """To encode and decode one task or its result in a batch, the mean of the two directions and kinds."""
    specs = tuple(m.TaskSpec(i, b"b" * 80, (f"7/f{i}",), (), (f"7/g{i}",), (2,)) for i in range(100))
    results = tuple(m.Result(i, 0, 0, 0, 0, 1, 1_700_000_000_000_000, 1_700_000_000_000_900, 600, 1700, 0, 10) for i in range(100))
    packet = Packet(1, 2, 3, 4, 5, 6, (m.Submit(7, specs), m.Done(7, results)))
    rounds = 200
    started = time.perf_counter()
    for _ in range(rounds):
        wire.decode(wire.encode(packet))
    return (time.perf_counter() - started) / (rounds * 200) * 1e6


def small_file_us(directory: Path) -> float:
    """To write ten bytes under a temporary name, rename, read and remove them."""
    temporary, final = str(directory / "small.part"), str(directory / "small")
    rounds = 5_000
    started = time.perf_counter()
    for _ in range(rounds):
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.write(fd, b"123456789\n")
        os.close(fd)
        os.rename(temporary, final)
        fd = os.open(final, os.O_RDONLY | os.O_CLOEXEC)
        os.read(fd, 16)
        os.close(fd)
        os.unlink(final)
    return (time.perf_counter() - started) / rounds * 1e6
