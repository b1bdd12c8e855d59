"""The page of ``amfs dashboard`` in Chromium: a real run, a thousand nodes, a phone, the keyboard; without the token nothing is shown."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daily import daily
from waiting import until

from amfs.live.aggregate import Aggregator, Reading
from amfs.vocabulary.live import AtWork, Failed, Frame, Node, Page, Run, Session, Stage

pytest.importorskip("starlette")
sync_api = pytest.importorskip("playwright.sync_api")
uvicorn = pytest.importorskip("uvicorn")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")]

NODES, TASKS = 1000, 100_000


class Simulated:
    """A session of a thousand nodes, as its reader would tell it: each look finds that it has gone on."""

    def __init__(self, nodes: int = NODES) -> None:
        self.nodes = nodes
        self.step = 0
        self.aggregator = Aggregator()

    def frame(self) -> Frame:
        self.step += 1
        now, done = 1e9 + self.step, min(TASKS, self.step * 1700)
        nodes = [
            Node(
                "big", number, "up" if number % 97 else "silent", f"host{number}", 8, (number + self.step) % 9, 5, number % 7, 100,
                number << 20, 1 << 31, ended=done // self.nodes, fetched=self.step << 22,
                fetched_from={(number * 7 + other * 31) % self.nodes: (other + self.step) << 20 for other in range(16)},
            )
            for number in range(self.nodes)
        ]  # fmt: skip
        stages = [Stage(f"stage {number:02}", TASKS // 40, min(TASKS // 40, done // 40), number % 3) for number in range(40)]
        runs = [Run(f"1.{number}", number, "big", 1, f"/data/list{number}.txt", "/data", 1e9, TASKS, done, 40, 8000, TASKS - done,
                    self.step << 30, 40, stages=stages) for number in range(3)]  # fmt: skip
        return self.aggregator.take(Reading(runs, nodes=nodes, sessions=[Session("big", 1e9)]), now, f"12:00:{self.step:02}")

    def page(self, at_work: int = 0, failed: int = 0, start: int = 0) -> Page:
        tasks = [AtWork("big", at, 0, 100 + at, 1e9, 1 << 20, at, 0, "1.0", f"<b>task{at}</b>", "stage 00") for at in range(at_work)]
        fails = [Failed("1.0", f"fail{number}", "exit status 1", "<script>alert(1)</script>\nlast words") for number in range(failed)]
        return Page(tasks, 8000, fails, 40)


@contextlib.contextmanager
def served(source: Any, every: float) -> Iterator[tuple[str, Any]]:
    from amfs.live.web import Dashboard

    dashboard = Dashboard(source, "secret", every)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(16)
        server = uvicorn.Server(uvicorn.Config(dashboard.app, ws="none", log_level="warning", lifespan="off", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, args=([sock],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}", dashboard
        finally:
            dashboard.close()
            server.should_exit = True
            thread.join(30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@contextlib.contextmanager
def opened(browser: Any, address: str, width: int = 1200, scheme: str = "light") -> Iterator[Any]:
    """A page without a fault."""
    faults: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.goto(address)
    yield page
    page.close()
    assert not faults, faults


def becomes(page: Any, condition: str) -> None:
    """The page's own policy forbids what playwright waits with."""
    until(lambda: page.evaluate(condition))


def status_of(address: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_run_at_work_is_shown_until_its_end(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tempfile.mkdtemp(prefix="amfs-t-", dir="/tmp")
    monkeypatch.setenv("AMFS_RUN_DIR", home)
    monkeypatch.delenv("AMFS_SESSION", raising=False)
    bad = 'bad -b /bin/sh -a -c "echo \\<broken\\> >&2; exit 3"\n'
    (tmp_path / "list.txt").write_text(bad + "".join(f"t{number} -b sleep -a 3\n" for number in range(6)))
    amfs = (sys.executable, "-m", "amfs")
    with subprocess.Popen([*amfs, "dashboard", "--every", "0.3"], stdout=subprocess.PIPE, text=True) as dashboard:
        try:
            assert dashboard.stdout is not None
            address = dashboard.stdout.readline().strip()
            with opened(browser, address) as page:
                becomes(page, "document.getElementById('sub').textContent.includes('no run is going on')")
                command = (*amfs, "run", "--local", "--slots", "2", "list.txt")
                with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as run:
                    page.wait_for_selector("#tasktable td.name >> text=/^t\\d$/", timeout=30_000)
                    page.wait_for_selector("#faillist >> text=<broken>", timeout=30_000)
                    assert page.locator("#runtable tbody tr").count() == 1
                    assert run.wait(60) == 1
                page.wait_for_selector("#runtable >> text=6 of 7", timeout=30_000)
                page.wait_for_selector("#runtable >> text=ended", timeout=30_000)
            metrics = address.replace("/?", "/metrics?")
            with urllib.request.urlopen(metrics, timeout=10) as answer:
                text = answer.read().decode()
            assert 'amfs_run_finished_total{' in text and "} 6.0" in text
        finally:
            dashboard.send_signal(signal.SIGINT)
            dashboard.wait(30)
            shutil.rmtree(home, ignore_errors=True)


def test_a_thousand_nodes_do_not_hang_the_page(browser: Any) -> None:
    with served(Simulated(), 0.25) as (address, _), opened(browser, f"{address}/?token=secret") as page:
        becomes(page, "amfs.drawn() >= 3")
        before, rows = page.evaluate("amfs.drawn()"), page.locator("#nodetable tbody tr").count()
        frames, longest = page.evaluate("""() => new Promise(done => {
            let count = 0, longest = 0, last = performance.now(); const begun = last;
            const turn = now => { count++; longest = Math.max(longest, now - last); last = now;
              if (now - begun < 4000) requestAnimationFrame(turn); else done([count / (now - begun) * 1000, longest]); };
            requestAnimationFrame(turn); })""")
        assert page.evaluate("amfs.drawn()") - before >= 4  # frames came meanwhile
        assert frames >= 10, (frames, longest)
        assert rows <= 60 and page.evaluate("document.querySelectorAll('*').length") < 5000
        nodes = page.evaluate("performance.memory ? performance.memory.usedJSHeapSize : 0")
        page.wait_for_timeout(2000)
        assert page.evaluate("performance.memory ? performance.memory.usedJSHeapSize : 0") < nodes + (64 << 20)
        assert "11 not up" in page.locator("#nodenote").inner_text()
        page.fill("#nodefilter", "host99")
        becomes(page, "document.getElementById('nodenote').textContent.startsWith('11 nodes')")


@pytest.mark.parametrize("scheme", daily(["light", "dark"], "dark"))
def test_it_fits_a_phone_and_obeys_the_keyboard(browser: Any, scheme: str) -> None:
    with served(Simulated(8), 0.3) as (address, _), opened(browser, f"{address}/?token=secret", 420, scheme) as page:
        page.wait_for_selector("#runtable tbody tr >> nth=2")
        page.wait_for_selector("#tasktable >> text=<b>task0</b>")  # text, not markup
        assert page.evaluate("document.documentElement.scrollWidth") <= 420
        page.keyboard.press("j")
        becomes(page, "document.querySelector('#runtable tr.chosen').dataset.run === '1.1'")
        page.keyboard.press("Space")
        assert page.locator("#state").inner_text() == "paused"
        page.wait_for_timeout(500)
        drawn = page.evaluate("amfs.frame().at")
        page.wait_for_timeout(700)
        assert page.evaluate("amfs.frame().at") == drawn
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (dark == "rgb(21, 24, 28)") == (scheme == "dark")


def test_who_has_no_token_sees_nothing_and_nothing_is_read_for_nobody() -> None:
    source = Simulated(2)
    with served(source, 0.1) as (address, dashboard):
        for path in ("/", "/events", "/page", "/metrics", "/?token=secre", "/events?token="):
            assert status_of(address + path) == 403
        assert status_of(f"{address}/metrics", Authorization="Bearer secret") == 200
        assert status_of(f"{address}/page?token=secret&failed=x") == 400
        assert status_of(f"{address}/assets/..%2fweb.py") == 404
        reads = dashboard.reads
        time.sleep(0.5)
        assert dashboard.reads == reads
        streams = [urllib.request.urlopen(f"{address}/events?token=secret", timeout=10) for _ in range(5)]
        try:
            for stream in streams:
                assert json.loads(stream.readline().removeprefix(b"data: "))["version"] == 1
            reads, begun = dashboard.reads, time.monotonic()
            time.sleep(1.0)
            assert dashboard.reads - reads <= (time.monotonic() - begun) / 0.05 + 2  # one reader, however many look
        finally:
            for stream in streams:
                stream.close()
        until(lambda: (reads := dashboard.reads, time.sleep(0.4), dashboard.reads == reads)[2])

