"""Python functions on a real session: the promises of concurrent.futures, and workers, nodes and callers that go."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from daily import daily
from fs_session import running

import amfs
from amfs.functions import crew
from amfs.functions.executor import CallInterrupted, Executor, RemoteTraceback, WorkerLost
from amfs.functions.pickles import Pickled, Pickles
from amfs.host.processes import is_running
from amfs.net import call_stream

PATIENCE_S = 60.0  # only turns a hang into a failure


@pytest.fixture(scope="module")
def cluster() -> Iterator[amfs.Cluster]:
    with amfs.Cluster(nodes=2, slots=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shared(cluster: amfs.Cluster) -> Iterator[Executor]:
    with cluster.executor() as executor:
        yield executor


def until(condition: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Point:
    """Of this module, which workers can import; its twin in a notebook is pickled by value."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    __hash__ = None  # type: ignore[assignment]


class Odd(Exception):
    """Cannot be made again from its pickle."""

    def __init__(self, what: str, why: int) -> None:
        super().__init__(f"{what} {why}")


def test_values_go_and_come(shared: Executor) -> None:
    k = 3
    assert shared.submit(lambda x, *, y: x * y + k, 5, y=7).result(PATIENCE_S) == 38  # type: ignore[misc]
    assert shared.submit(Point, 4).result(PATIENCE_S) == Point(4)
    assert list(shared.map(pow, range(50), [2] * 50)) == [x * x for x in range(50)]
    assert list(shared.map(lambda x: -x, range(1000), chunksize=64)) == [-x for x in range(1000)]
    assert list(shared.map(abs, [])) == []


def test_work_is_on_all_nodes(shared: Executor) -> None:
    def where(_: int) -> int:
        time.sleep(0.3)
        return os.getpid()

    assert len(set(shared.map(where, range(4)))) == 2


def test_large_values_are_files_meanwhile(cluster: amfs.Cluster, shared: Executor) -> None:
    given = np.arange(300_000)
    assert (shared.submit(lambda a: a + 1, given).result(PATIENCE_S) == given + 1).all()
    table = np.arange(20_000)  # in the function
    assert list(shared.map(lambda i: int(table[i]), range(10))) == list(range(10))
    cluster.files.write_bytes("/for-all", b"x" * 100)
    assert shared.submit(lambda: len(amfs.Cluster().get("/for-all"))).result(PATIENCE_S) == 100  # functions reach the session's files
    until(lambda: not [path for path in cluster.files.glob("/.amfs/calls/*/*") if b"/r" in path])


def test_a_function_is_as_it_is_when_it_is_submitted(shared: Executor) -> None:
    box = {"n": 1}

    def look() -> int:
        return box["n"]

    first = shared.submit(look)
    box["n"] = 2
    assert shared.submit(look).result(PATIENCE_S) == 2
    assert first.result(PATIENCE_S) == 1


def test_pickles_are_made_again_only_when_something_changed() -> None:
    code = """
limit, table, helper_calls = 10, [1], 0
def helper(x): return x + limit
def plain(x): return helper(x)
def reader(): return table[0]
"""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(code, space)
    pickles = Pickles()
    first = pickles.of(space["plain"])
    assert pickles.of(space["plain"]) is first
    space["limit"] = 11
    again = pickles.of(space["plain"])
    assert again is not first and pickle.loads(again.data)(1) == 12
    exec("def helper(x): return 0", space)
    assert pickle.loads(pickles.of(space["plain"]).data)(1) == 0
    before = pickles.of(space["reader"])
    space["table"][0] = 5  # nobody sees that, so such functions are pickled each time
    assert pickle.loads(pickles.of(space["reader"]).data)() == 5
    assert pickle.loads(before.data)() == 1
    assert pickles.of(os.getpid) is pickles.of(os.getpid)


def test_exceptions_come_with_their_traceback(shared: Executor) -> None:
    def below() -> None:
        raise KeyError("nothing of that name")

    with pytest.raises(KeyError, match="nothing of that name") as caught:
        shared.submit(below).result(PATIENCE_S)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "in below" in str(caught.value.__cause__)

    def odd() -> None:
        raise Odd("it is", 7)

    with pytest.raises(RuntimeError, match="Odd: it is 7"):
        shared.submit(odd).result(PATIENCE_S)
    with pytest.raises(SystemExit):
        shared.submit(sys.exit, 3).result(PATIENCE_S)
    with pytest.raises(TypeError):  # neither arguments that cannot be pickled …
        shared.submit(abs, threading.Lock())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pickle"):  # … nor results stop anything
        shared.submit(threading.Lock).result(PATIENCE_S)
    assert shared.submit(abs, -1).result(PATIENCE_S) == 1


def test_what_functions_print_appears_here(shared: Executor, capsys: pytest.CaptureFixture[str]) -> None:
    def talk() -> None:
        print("one")
        print("two", end="")
        print("wrong", file=sys.stderr)

    shared.submit(talk).result(PATIENCE_S)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("one\ntwo", "wrong\n")


def test_futures_are_those_of_the_library(shared: Executor) -> None:
    waiting = [shared.submit(time.sleep, 0.2) for _ in range(2)]
    later = [shared.submit(pow, 2, n) for n in range(20)]
    assert later[-1].cancel() and later[-1].cancelled()
    done, left = futures.wait([*waiting, *later], timeout=PATIENCE_S)
    assert not left and len(done) == 22
    assert sorted(f.result() for f in futures.as_completed(later[:-1])) == [2**n for n in range(19)]
    with pytest.raises(TimeoutError):
        list(shared.map(time.sleep, [0.5, 0.5], timeout=0.05))
    called = threading.Event()
    shared.submit(abs, 1).add_done_callback(lambda future: called.set())
    assert called.wait(PATIENCE_S)


def test_a_cancelled_call_may_be_sent_once_more() -> None:
    """When the worker that was to answer it gives it back. A future can be told only once."""
    call = crew.Call(futures.Future(), Pickled(b""), 0, b"", False)
    assert call.future.cancel()
    assert (call.begin(), call.begin()) == (False, False)


def test_a_worker_that_dies_takes_only_its_call(shared: Executor) -> None:
    def fragile(n: int) -> int:
        if n == 137:
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    list(shared.map(abs, range(200)))  # calls are short: they are sent many at a time
    made = [shared.submit(fragile, n) for n in range(400)]
    outcomes = [future.exception(PATIENCE_S) for future in made]
    assert [n for n, error in enumerate(outcomes) if error is not None] == [137]
    assert isinstance(outcomes[137], WorkerLost) and isinstance(outcomes[137], futures.BrokenExecutor)
    assert shared.submit(abs, -1).result(PATIENCE_S) == 1


def test_a_lost_call_can_be_tried_again(cluster: amfs.Cluster, tmp_path: Path) -> None:
    mark = tmp_path / "was-here"

    def once() -> str:
        if not mark.exists():
            mark.touch()
            os._exit(1)
        return "second time"

    with cluster.executor(retries=1) as executor:
        assert executor.submit(once).result(PATIENCE_S) == "second time"


def test_calls_behind_a_long_one_go_elsewhere(shared: Executor) -> None:
    list(shared.map(abs, range(2000)))
    started = time.monotonic()
    long = shared.submit(time.sleep, 20)
    list(shared.map(abs, range(2000)))
    assert not long.done() and time.monotonic() - started < 15
    shared.interrupt()


def test_an_interrupt_ends_what_runs_and_leaves_the_executor_usable(shared: Executor, tmp_path: Path) -> None:
    place = tmp_path / "pid"

    def stuck() -> None:
        place.write_text(str(os.getpid()))
        time.sleep(1000)

    running, waiting = shared.submit(stuck), [shared.submit(abs, 1) for _ in range(5000)]
    until(lambda: place.exists() and place.read_text())
    shared.interrupt()
    with pytest.raises(CallInterrupted):
        running.result(0)
    assert all(future.done() for future in waiting)
    until(lambda: not Path(f"/proc/{place.read_text()}").exists())
    assert shared.submit(abs, -2).result(PATIENCE_S) == 2


def test_idle_workers_leave_their_slots_to_tasks(cluster: amfs.Cluster, shared: Executor) -> None:
    list(shared.map(time.sleep, [0.05] * 4))
    started = time.monotonic()
    result = cluster.run([amfs.Task(f"t{n}", ("/bin/true",)) for n in range(8)])  # the workers hold both slots for ten seconds
    assert result.ok and time.monotonic() - started < 9
    assert shared.submit(abs, -3).result(PATIENCE_S) == 3


def test_shutdown_waits_or_drops(cluster: amfs.Cluster) -> None:
    executor = cluster.executor()
    made = [executor.submit(abs, -n) for n in range(100)]
    executor.shutdown()
    assert [future.result(0) for future in made] == list(range(100))
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, 1)
    executor = cluster.executor(1)
    first = executor.submit(time.sleep, 0.5)
    until(first.running)
    made = [executor.submit(time.sleep, 0.5) for _ in range(50)]  # type: ignore[arg-type]
    executor.shutdown(cancel_futures=True)
    assert first.result(0) is None and made[-1].cancelled()
    assert executor._crew is not None and not cluster.files.glob(executor._crew.directory)  # the shared one may have files


def test_workers_that_cannot_start_are_said(cluster: amfs.Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cloudpickle.py").write_text("raise SystemExit('this one is broken')")
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('no Python today')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    executor = cluster.executor()
    with pytest.raises(futures.BrokenExecutor, match="workers cannot be started"):
        executor.submit(abs, 1).result(PATIENCE_S)
    with pytest.raises(futures.BrokenExecutor):
        executor.submit(abs, 1)


def test_a_node_that_dies_is_one_worker_less() -> None:
    with amfs.Cluster(nodes=2, slots=1) as cluster, cluster.executor() as executor:
        list(executor.map(time.sleep, [0.1] * 4))
        victim = cluster.files.connection.session.nodes[1]

        def slow(n: int) -> int:
            time.sleep(0.02)
            return n

        made = [executor.submit(slow, n) for n in range(100)]
        until(lambda: made[10].done())
        os.kill(victim.pid, signal.SIGKILL)
        outcomes = [future.exception(PATIENCE_S) for future in made]
        lost = [error for error in outcomes if error is not None]
        assert len(lost) <= 1 and all(isinstance(error, WorkerLost) for error in lost)


def test_a_session_that_ends_fails_the_calls() -> None:
    cluster = amfs.Cluster(nodes=1, slots=1)
    executor = cluster.executor()
    future = executor.submit(time.sleep, 1000)
    until(future.running)
    cluster.close()
    with pytest.raises((CallInterrupted, WorkerLost)):
        future.result(PATIENCE_S)


def test_strangers_are_not_workers(cluster: amfs.Cluster, shared: Executor) -> None:
    shared.submit(abs, 1).result(PATIENCE_S)
    address = f"unix:{next(cluster.files.connection.session.directory.glob('fn-*'))}"
    with pytest.raises(amfs.ProtocolError, match="another key"):
        call_stream.join(address, b"x" * 32, 1)
    assert shared.submit(abs, -1).result(PATIENCE_S) == 1


def test_who_ends_the_handshake_after_the_executor_has_ended_is_hung_up_on(cluster: amfs.Cluster) -> None:
    executor = cluster.executor()
    assert executor.submit(abs, -1).result(PATIENCE_S) == 1
    workers = executor._crew
    assert workers is not None
    hello = call_stream._HELLO.pack(b"AMFC", 1, 77, bytes(32))
    with socket.socket(socket.AF_UNIX) as late:
        late.settimeout(PATIENCE_S)
        late.connect(workers._addresses.removeprefix("unix:"))
        late.sendall(hello)
        nonce = late.recv(64, socket.MSG_WAITALL)[:32]
        executor.shutdown()
        late.sendall(call_stream._proof(workers._key, b"worker", hello + nonce))
        assert late.recv(1) == b""


def test_an_executor_that_has_ended_writes_to_no_descriptor(cluster: amfs.Cluster, tmp_path: Path) -> None:
    """Its own have numbers that belong to others by then."""
    executor = cluster.executor()
    assert executor.submit(abs, -1).result(PATIENCE_S) == 1
    executor.shutdown()
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(open(tmp_path / str(number), "wb")) for number in range(100)]
        executor.release()
        executor.shutdown()
        assert [os.fstat(other.fileno()).st_size for other in others] == [0] * len(others)


def test_frames_over_tcp_bear_a_code() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        made: list[tuple[int, call_stream.CallStream]] = []
        thread = threading.Thread(target=lambda: made.append(call_stream.accept(server.accept()[0], b"k" * 32)))
        thread.start()
        worker = call_stream.join(f"tcp:127.0.0.1:{server.getsockname()[1]}", b"k" * 32, 7)
        thread.join()
    number, executor = made[0]
    with worker.sock, executor.sock:
        assert number == 7
        data = b"".join(worker.pack(call_stream.VALUE, n, b"v" * n) for n in range(5))
        frames = [frame for at in range(0, len(data), 7) for frame in executor.feed(data[at : at + 7])]
        assert [(frame.call, frame.payload) for frame in frames] == [(n, b"v" * n) for n in range(5)]
        changed = bytearray(worker.pack(call_stream.VALUE, 9, b"good"))
        changed[-20] ^= 1
        with pytest.raises(amfs.ProtocolError, match="changed"):
            executor.feed(bytes(changed))
        with pytest.raises(amfs.ProtocolError, match="changed"):  # nor can one be repeated
            executor.feed(data[: call_stream.HEAD.size + 16])


PROGRAM = """
import os, sys, time, amfs
cluster = amfs.Cluster(nodes=1, slots=1)
how = sys.argv[1]
def me(): return os.getpid()
with cluster.executor() as executor:
    print(cluster.name, *(entry.pid for entry in cluster.files.connection.session.nodes), executor.submit(me).result(), flush=True)
    if how == "killed":
        os.kill(os.getpid(), 9)
    if how == "error":
        raise ValueError("an error")
if how == "forgotten":
    session = cluster.files.connection.session
    del cluster, executor
    import gc
    gc.collect()
    print(session.path.exists(), flush=True)
"""


@pytest.mark.parametrize("how", daily(["killed", "error", "forgotten"], "killed"))
def test_what_was_started_here_ends_with_us(how: str) -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    name, *pids = ran.stdout.splitlines()[0].split()
    if how == "forgotten":
        assert ran.stdout.splitlines()[1] == "False"
    assert ("ValueError: an error" in ran.stderr) == (how == "error"), ran.stderr
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    from amfs.net.records import base_dir

    until(lambda: not (base_dir() / name).exists())


def test_a_kept_session_is_found_again() -> None:
    code = "import amfs, sys; c = amfs.Cluster('kept', nodes=1, slots=1, keep=True); {}; sys.stdout.flush()"
    write = "c.put('/there', b'still')"
    subprocess.run([sys.executable, "-c", code.format(write)], check=True, timeout=PATIENCE_S)
    read = "print(c.get('/there').decode())"
    again = subprocess.run([sys.executable, "-c", code.format(read)], check=True, timeout=PATIENCE_S, capture_output=True, text=True)
    assert again.stdout == "still\n"
    cluster = amfs.Cluster("kept", nodes=3)
    nodes = cluster.files.connection.session.nodes
    assert len(nodes) == 1
    cluster.shutdown()
    assert not any(is_running(entry.pid, entry.started) for entry in nodes)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"nodes": 0}, "at least one node"),
        ({"nodes": 1, "slots": 0}, "at least one slot"),
        ({"nodes": 1, "keep": True}, "needs a name"),
        ({"keep": True}, "say how many nodes"),
        ({"session": "a/b.json", "nodes": 1}, "needs a name"),
        ({"session": "-", "nodes": 1}, "cannot name a session"),
    ],
)
def test_what_makes_no_sense_is_refused(how: dict[str, Any], says: str) -> None:
    with pytest.raises(amfs.UsageError, match=says):
        amfs.Cluster(**how)


def test_workers_of_other_hosts_come_over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here there is one host: the executor takes the nodes for those of another, and does not tell them of its Unix socket."""
    listen = crew.Crew._listen
    monkeypatch.setattr(crew, "host_id", lambda: "another")
    monkeypatch.setattr(crew.Crew, "_listen", lambda self: [place for place in listen(self) if place.startswith("tcp:")])
    with running(1, "--tcp", "127.0.0.1") as session, amfs.Cluster(session.name) as cluster, cluster.executor() as executor:
        assert list(executor.map(abs, range(2000))) == list(range(2000))
        assert len(executor.submit(bytes, 100_000).result(PATIENCE_S)) == 100_000
        executor.shutdown()
        assert not cluster.files.glob("/.amfs/calls/*")
