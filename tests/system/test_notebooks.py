"""A real kernel: the output of notebooks, interrupts, restarts, and that nothing is left when a kernel ends."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client import BlockingKernelClient, KernelManager

from amfs.client import discovery
from amfs.net.records import list_all

PATIENCE_S = 60.0  # only turns a hang into a failure


class Kernel:
    """A kernel and its client. ``run`` gives what a cell shows: text, HTML and the error, if any."""

    def __init__(self) -> None:
        self.manager = KernelManager()
        self.manager.start_kernel()
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE_S)

    def begin(self, code: str) -> str:
        return str(self.client.execute(code))

    def end_of(self, request: str, until: str = "") -> tuple[str, str, str]:
        """The output of the request until it has ended, or until its text has ``until`` in it."""
        text, page, error = "", "", ""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                message: dict[str, Any] = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            content = message["content"]
            if message["parent_header"].get("msg_id") != request and message["msg_type"] != "update_display_data":
                continue
            if message["msg_type"] == "stream":
                text += content["text"]
                if until and until in text:
                    return text, page, error
            elif message["msg_type"] in ("execute_result", "display_data", "update_display_data"):
                page += content["data"].get("text/html", content["data"].get("text/plain", "")) + "\n"
            elif message["msg_type"] == "error":
                error = f"{content['ename']}: {content['evalue']}"
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                return text, page, error
        raise AssertionError(f"the cell does not end: {text} {page}")

    def run(self, code: str) -> tuple[str, str, str]:
        return self.end_of(self.begin(code))

    def well(self, code: str) -> str:
        text, page, error = self.run(code)
        assert not error, error
        return text + page

    def close(self, now: bool = False) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=now)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    kernel.well("import amfs, os, time\ncluster = amfs.Cluster(nodes=1, slots=2)")
    yield kernel
    kernel.close()
    until(lambda: not [session for session in list_all() if discovery.is_live(session)])


def until(condition: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_things_show_themselves(kernel: Kernel) -> None:
    assert "<table" in kernel.well("cluster")
    assert "2 slots" in kernel.well("cluster")
    shown = kernel.well(
        "result = cluster.run([amfs.Task(str(n), ('sleep', '0.4'), label='nap') for n in range(6)]"
        " + [amfs.Task('bad', ('sh', '-c', 'echo oh no >&2; exit 3'))])\nresult"
    )
    assert "<progress" in shown, "progress while it runs"
    assert "6 tasks finished, 1 failed" in shown and "oh no" in shown and "nap" in shown
    drawing = kernel.well("result.timeline()")
    assert drawing.count("<svg") == 1 and "nap" in drawing and "slot 1" in drawing
    assert "<svg" in kernel.well("result.graph()")
    assert "oh no" in kernel.well(
        "session = cluster.session()\nhandle = session.submit('echo oh no >&2; exit 3')\n"
        "try: session.wait()\nexcept amfs.TaskFailed: pass\nhandle"
    )
    assert "1 failed" in kernel.well("session")
    kernel.well("session.close()")


def test_functions_of_the_notebook_run_elsewhere(kernel: Kernel) -> None:
    kernel.well("class Pair:\n    def __init__(self, a): self.a = a\nexecutor = cluster.executor()\nbase = 10")
    kernel.well("def double(pair):\n    print('at work')\n    return Pair(base + 2 * pair.a)")
    assert kernel.well("r = executor.submit(double, Pair(4)).result(); print(r.a, type(r) is Pair)") == "at work\n18 True\n"
    kernel.well("base = 20")
    assert kernel.well("print(executor.submit(double, Pair(4)).result().a)") == "at work\n28\n"
    # a running event loop is no hindrance
    assert kernel.well("import asyncio\nprint(await asyncio.wrap_future(executor.submit(pow, 2, 5)))") == "32\n"


def test_the_traceback_of_a_function_has_its_source_lines(kernel: Kernel) -> None:
    kernel.well("executor = cluster.executor()\ndef divide(x):\n    return 1 / x  # the line")
    text = kernel.well("try: executor.submit(divide, 0).result()\nexcept ZeroDivisionError as error: print(error.__cause__)")
    assert "return 1 / x  # the line" in text and "amfs" not in text, text


def test_a_cell_of_shell_commands(kernel: Kernel) -> None:
    kernel.well("%load_ext amfs\ncluster.put('/greeting', b'hello\\n')")
    assert kernel.well("%%amfs --here\namfs cat /greeting; echo $AMFS_SESSION >&2\n").startswith("hello\n")
    _, _, error = kernel.run("%%amfs --here\nexit 4")
    assert "status 4" in error
    _, _, error = kernel.run("%%amfs --nonsense\ntrue")
    assert "usage" in error
    request = kernel.begin("%%amfs --here\necho $$; sleep 1000")
    text, _, _ = kernel.end_of(request, until="\n")
    kernel.manager.interrupt_kernel()
    assert "KeyboardInterrupt" in kernel.end_of(request)[2]
    until(lambda: not Path(f"/proc/{text.strip()}").exists())


@pytest.mark.parametrize(
    "code",
    [
        "print('begun', flush=True); cluster.run([amfs.Task('t', ('sh', '-c', 'echo $$ > {pid}; sleep 1000'))])",
        "def stuck():\n    open({pid!r}, 'w').write(str(os.getpid())); time.sleep(1000)\n"
        "print('begun', flush=True); executor = cluster.executor(); executor.submit(stuck).result()",
        "session = cluster.session(); session.submit('echo $$ > {pid}; sleep 1000'); print('begun', flush=True); session.wait()",
    ],
    ids=["run", "executor", "session"],
)
def test_an_interrupt_stops_the_tasks_and_leaves_the_cluster_usable(kernel: Kernel, code: str, tmp_path: Path) -> None:
    place = tmp_path / "pid"
    request = kernel.begin(code.replace("{pid!r}", repr(str(place))).replace("{pid}", str(place)))
    kernel.end_of(request, until="begun")
    until(lambda: place.exists() and place.read_text().strip())
    kernel.manager.interrupt_kernel()
    text, _, error = kernel.end_of(request)
    assert "KeyboardInterrupt" in error and text.count("amfs: interrupted: the tasks and calls that went on were ended") == 1, text
    began = time.monotonic()
    until(lambda: not Path(f"/proc/{place.read_text().strip()}").exists())
    assert time.monotonic() - began < 5, "the nodes had to find out by themselves"
    assert "1 tasks finished" in kernel.well("print(repr(cluster.run([amfs.Task('t', ('true',))])))")
    assert kernel.well("print(cluster.executor().submit(abs, -5).result())") == "5\n"


def test_a_kernel_that_is_restarted_goes_on_with_the_files(tmp_path: Path) -> None:
    kernel = Kernel()
    try:
        attach = "import amfs\ncluster = amfs.Cluster('restarted', nodes=1, slots=1, keep=True)\nexecutor = cluster.executor()"
        kernel.well(attach + "\ncluster.put('/step', b'1')")
        kernel.well("executor.submit(abs, -1).result()")
        busy = kernel.begin("import time\nprint('on', flush=True)\nexecutor.submit(time.sleep, 1000).result()")
        kernel.end_of(busy, until="on")
        kernel.manager.restart_kernel(now=True)  # in the middle of it
        kernel.client.wait_for_ready(timeout=PATIENCE_S)
        assert kernel.well(attach + "\nprint(cluster.get('/step'), executor.submit(abs, -7).result())") == "b'1' 7\n"
        kernel.well("cluster.shutdown()")
    finally:
        kernel.close()
    assert "restarted" not in [session.name for session in list_all()]


def test_a_kernel_that_is_killed_leaves_nothing() -> None:
    kernel = Kernel()
    name = kernel.well("import amfs\ncluster = amfs.Cluster(nodes=1, slots=1)\nprint(cluster.name)").strip()
    kernel.close(now=True)
    until(lambda: name not in [session.name for session in list_all()])
