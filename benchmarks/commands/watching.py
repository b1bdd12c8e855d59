"""``benchmarks watch``: the cost to a run of being watched. Options, table and measurement.

One run; the three faces are started before it, and stopped and continued in turn by signals, so that starting them is not measured.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

import click

AMFS = (sys.executable, "-m", "amfs")


@click.command()
@click.option("--tasks", type=click.IntRange(1000), default=60_000, show_default=True, help="Tasks of the run.")
@click.option("--nodes", type=click.IntRange(1), default=4, show_default=True, help="Local nodes, a slot each.")
@click.option("--seconds", type=click.FloatRange(0.5), default=3.0, show_default=True, help="Of each turn.")
def watch(tasks: int, nodes: int, seconds: float) -> int:
    """Run no-op tasks, watched by status --watch, top and the dashboard and not watched in turn; the ratio of the rates."""
    with tempfile.TemporaryDirectory(prefix="amfs-w-", dir="/tmp") as home:
        os.environ["AMFS_RUN_DIR"] = home
        name = f"watch-{os.getpid()}"
        _do("up", "--nodes", str(nodes), "--slots", "1", "--name", name)
        try:
            turns = _turns(Path(home), name, tasks, seconds)
        finally:
            _do("down", name)
    if len(turns) < 4:
        click.echo("the run was over before it could be measured: take more --tasks", err=True)
        return 1
    views = statistics.median(turn.views for turn in turns if turn.watched)
    click.echo(f"{tasks:,} tasks on {nodes} nodes, watched and not in {len(turns)} turns of {seconds:g} s; watched beside unwatched:")
    pairs = [(one, other) if one.watched else (other, one) for one, other in itertools.pairwise(turns)]
    for title, field in (("tasks a second", "rate"), ("engine CPU a task", "cpu")):
        ratios = [getattr(watched, field) / getattr(alone, field) for watched, alone in pairs]
        low, middle, high = statistics.quantiles(ratios, n=4)
        click.echo(f"  {title}: {middle:.3f} (quartiles {low:.3f} and {high:.3f})")
    click.echo(f"  CPU of the three views: {views / seconds / len(os.sched_getaffinity(0)):.1%} of this machine, which the run is without")
    return 0


class Turn(NamedTuple):
    """``cpu``: seconds of the nodes and of the process of the run, for each task. ``views``: seconds of the three faces."""

    watched: bool
    rate: float
    cpu: float
    views: float


def _do(*words: str) -> None:
    subprocess.run([*AMFS, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _cpu(pids: list[int]) -> float:
    """Seconds of CPU that these processes have used, without their children."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _turns(home: Path, name: str, tasks: int, seconds: float) -> list[Turn]:
    """The turns of one run, watched and not."""
    from amfs.live.reader import ask_run, run_sockets
    from amfs.net.records import load
    from amfs.vocabulary.live import Ask

    (home / "list").write_text("".join(f"t{number} -b /bin/true\n" for number in range(tasks)))
    faces: list[subprocess.Popen[str]] = [
        subprocess.Popen([*AMFS, "status", "--watch", "--output", "json"], stdout=subprocess.DEVNULL, text=True),
        subprocess.Popen([*AMFS, "dashboard"], stdout=subprocess.PIPE, text=True),
    ]
    ours, theirs = os.openpty()
    faces.append(subprocess.Popen([*AMFS, "top"], stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, text=True))
    threading.Thread(target=_drain, args=(ours,), daemon=True).start()
    assert faces[1].stdout is not None
    address = faces[1].stdout.readline().strip().replace("/?", "/events?")
    threading.Thread(target=_look, args=(address,), daemon=True).start()
    run = subprocess.Popen([*AMFS, "run", "--session", name, "--no-journal", "list"], cwd=home, stderr=subprocess.DEVNULL)
    turns: list[Turn] = []
    viewers = [face.pid for face in faces]
    pids = [entry.pid for entry in load(home / name / "session.json").nodes] + [run.pid]
    try:
        while not run_sockets() and run.poll() is None:
            time.sleep(0.1)
        time.sleep(2.0)
        (_, path), *_ = run_sockets()
        watched = True
        while run.poll() is None:
            for face in faces:
                face.send_signal(signal.SIGCONT if watched else signal.SIGSTOP)
            time.sleep(0.3)  # the look that was begun ends
            before, at, used, seen = ask_run(path, Ask("totals")).run, time.monotonic(), _cpu(pids), _cpu(viewers)
            time.sleep(seconds)
            after, now, used = ask_run(path, Ask("totals")).run, time.monotonic(), _cpu(pids) - used
            if before is None or after is None or after.finished == after.total:
                break
            done = max(1, after.finished - before.finished)
            turns.append(Turn(watched, done / (now - at), used / done, _cpu(viewers) - seen))
            watched = not watched
    except OSError:
        pass  # the run is over
    finally:
        for process in faces:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(30)
        run.wait()
        os.close(theirs)
    return turns


def _drain(fd: int) -> None:
    with contextlib.suppress(OSError):  # the other end was closed
        while os.read(fd, 65536):
            pass


def _look(address: str) -> None:
    with contextlib.suppress(OSError), urllib.request.urlopen(address) as stream:
        while stream.readline():
            pass
