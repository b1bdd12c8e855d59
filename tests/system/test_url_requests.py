"""How often a run asks storage at URLs for its inputs: counted in the logs of real servers. And that it reads what it saw when it asked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fs_session import running
from servers import S3, Server, Sftp, Web, free_port

from amfs.display.progress import QuietProgress
from amfs.runs.context import RunOptions
from amfs.runs.drive import drive, open_run
from amfs.translate.detect import load_checked
from amfs.translate.place import HostPlace

_REQUEST = re.compile(r'"(?:\x1b\[[0-9;]*m)*([A-Z]+) ([^ "]+) HTTP')  # moto writes what it did not find in colours


class Requests:
    """Those that a server has logged since ``forget``."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._from = 0

    def forget(self) -> None:
        self._from = self._log.stat().st_size if self._log.exists() else 0

    def all(self) -> list[tuple[str, str]]:
        with self._log.open() as file:
            file.seek(self._from)
            return [(found[1], found[2]) for found in _REQUEST.finditer(file.read())]

    def of(self, beginning: str) -> Counter[str]:
        """How many of each method for what begins so."""
        return Counter(method for method, what in self.all() if what.startswith(beginning))

    def listings(self) -> int:
        return sum("list-type=2" in what for _, what in self.all())


@pytest.fixture(scope="module", name="s3")
def s3_with_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[S3, Requests]]:
    log = tmp_path_factory.mktemp("s3") / "log"
    server = S3(log)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server, Requests(log)
    server.server.kill()


def run(place: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "amfs", "run", "-q", *arguments]
    return subprocess.run(command, cwd=place, env={**os.environ, **environment}, capture_output=True, text=True, timeout=100, check=False)


def readers(place: Path, bucket: str, keys: list[str]) -> str:
    """Two tasks read each object."""
    names = [(f"{how}{number}", f"{bucket}/{key}") for number, key in enumerate(keys) for how in "ab"]
    (place / "tasks").write_text("".join([f"{name} -b cp -i s3://{at} -o {name} -a s3:/{at} {name}\n" for name, at in names]))
    return "tasks"


def test_each_object_is_asked_about_once_and_fetched_once(s3: tuple[S3, Requests], tmp_path: Path) -> None:
    server, requests = s3
    keys = ["in/a", "in/b", "other/c"]
    server.put("few", {key: key.encode() for key in keys})
    requests.forget()
    tasks = readers(tmp_path, "few", keys)
    done = run(tmp_path, "--local", tasks)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    for number, key in enumerate(keys):
        assert requests.of(f"/few/{key}") == {"HEAD": 1, "GET": 1}, requests.all()
        assert (tmp_path / f"b{number}").read_text() == key
    assert requests.listings() == 0
    requests.forget()
    assert run(tmp_path, "--local", "--resume", tasks).returncode == 0
    assert [requests.of(f"/few/{key}") for key in keys] == [{"HEAD": 1}] * 3, requests.all()


def test_objects_that_lie_together_are_asked_about_by_one_listing(s3: tuple[S3, Requests], tmp_path: Path) -> None:
    server, requests = s3
    together = [f"in/{number:03}" for number in range(40)]
    apart = [f"samples/s{number}/reads" for number in range(9)]
    keys = [*together, *apart, "in/empty"]
    server.put("many", {key: key.encode() if key != "in/empty" else b"" for key in keys} | {f"in/unread/{n}": b"x" for n in range(50)})
    requests.forget()
    tasks = readers(tmp_path, "many", keys)
    with running(1):
        done = run(tmp_path, tasks)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
    for key in (*together, *apart):
        assert requests.of(f"/many/{key}") == {"GET": 1}, requests.all()
    assert requests.of("/many/in/empty") == {"HEAD": 1, "GET": 1}, "an empty object in a listing may be the mark of a directory"
    assert requests.listings() == 2
    assert len(requests.all()) == 2 + 49 + 2
    requests.forget()
    with running(1):
        assert '"skipped":100' in run(tmp_path, "--resume", "--output", "json", tasks).stdout, "a listing tells the same identities"
    assert len(requests.all()) == 3, requests.all()


def test_a_listing_that_is_too_long_is_given_up(s3: tuple[S3, Requests], tmp_path: Path) -> None:
    server, requests = s3
    keys = [f"z/{number}" for number in range(8)]
    server.put("long", dict.fromkeys([*keys, "z/8", "z/9"], b"1\n") | {f"0/{n}": b"" for n in range(1200)})
    places = [f"#amfs path l{n} s3://long/{key}\n" for n, key in enumerate(keys)]
    names = " ".join(f"l{n}" for n in range(8))
    (tmp_path / "tasks").write_text("".join(places) + f"a -b cat -i {names} -stdout out -a {names}\n")
    requests.forget()
    done = run(tmp_path, "--local", "tasks")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert requests.listings() == 1 and requests.of("/long/z/") == {"GET": 8}
    spread = [f"#amfs path l{n} s3://long/{key}\n" for n, key in enumerate([*keys[:7], "top"])]
    server.client.put_object(Bucket="long", Key="top", Body=b"3\n")
    (tmp_path / "tasks").write_text("".join(spread) + f"a -b cat -i {names} -stdout out -a {names}\n")
    requests.forget()
    done = run(tmp_path, "--local", "tasks")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert requests.listings() == 1 and requests.of("/long/top") == {"HEAD": 1, "GET": 1}
    assert requests.of("/long/z/") == {"HEAD": 7, "GET": 7}


def test_objects_are_asked_about_one_by_one_where_nobody_may_list(s3: tuple[S3, Requests], tmp_path: Path) -> None:
    server, _ = s3
    server.put("unlisted", {f"in/{number}": b"1\n" for number in range(9)})
    port = free_port()
    (tmp_path / "conf").write_text(
        f"daemon off; pid {tmp_path}/pid; error_log stderr; events {{}}\nhttp {{ access_log {tmp_path}/log;\n"
        f"server {{ listen 127.0.0.1:{port}; location / {{ if ($args ~ list-type) {{ return 403;}} proxy_pass {server.endpoint}; }} }} }}\n"
    )
    refusing = Server(["nginx", "-c", str(tmp_path / "conf")], port)
    requests = Requests(tmp_path / "log")
    try:
        tasks = readers(tmp_path, "unlisted", [f"in/{n}" for n in range(9)])
        done = run(tmp_path, "--local", tasks, AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert requests.listings() == 1 and requests.of("/unlisted/in/") == {"HEAD": 9, "GET": 9}
    finally:
        refusing.kill()


def test_a_directory_is_listed_once_by_the_run_and_once_by_a_node(s3: tuple[S3, Requests], tmp_path: Path) -> None:
    server, requests = s3
    server.put("tree", {"in/a": b"1\n", "in/b/c": b"2\n"})
    (tmp_path / "tasks").write_text("#amfs path here s3://tree/in\na -b sh -i here -stdout out -a -c 'cat here/a here/b/c'\n")
    requests.forget()
    done = run(tmp_path, "--local", "tasks")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert (tmp_path / "out").read_bytes() == b"1\n2\n"
    assert requests.of("/tree/in/a") == {"GET": 1} and requests.of("/tree/in/b/c") == {"GET": 1}
    assert requests.listings() == 2 and len(requests.all()) == 5, requests.all()  # and it was no object


def run_after(place: Path, change: Callable[[], object], tasks: str) -> tuple[int, list[str]]:
    """A run whose inputs change after it has looked at them, and before a node fetches them: how many tasks ended well, and why others did
    not."""
    (place / "tasks").write_text(tasks)
    workflow, plan = load_checked(place / "tasks", HostPlace(place))
    change()
    why: list[str] = []
    with open_run(
        RunOptions(base=str(place)), workflow.tasks, plan, on_ended=lambda _, result: why.append(result.detail) if result.outcome else None
    ) as driver:
        driver.begin()
        drive(driver, QuietProgress())
        return driver.summary(0, "").count("ok"), why


def test_an_object_that_changed_since_the_run_looked_is_not_read(s3: tuple[S3, Requests], tmp_path: Path) -> None:
    server, _ = s3
    server.put("changing", {"in": b"old\n", "kept": b"kept\n", "gone": b"gone\n"})

    def change() -> None:
        server.client.put_object(Bucket="changing", Key="in", Body=b"new\n")
        server.client.delete_object(Bucket="changing", Key="gone")

    lines = [f"{name} -b cp -i s3://changing/{name} -o {name} -a s3:/changing/{name} {name}\n" for name in ("in", "kept", "gone")]
    well, why = run_after(tmp_path, change, "".join(lines))
    assert well == 1 and sorted(why) == [
        "cannot read its input: s3://changing/gone: no such object",
        "cannot read its input: s3://changing/in: has changed since the run looked at it; --resume reads what is there now",
    ]
    assert (tmp_path / "kept").read_bytes() == b"kept\n" and not (tmp_path / "in").exists()


@pytest.mark.parametrize("name", ["in/a", "in/more"])
def test_a_directory_that_changed_since_the_run_looked_is_not_read(s3: tuple[S3, Requests], tmp_path: Path, name: str) -> None:
    server, _ = s3
    bucket = f"changing-tree-{len(name)}"
    server.put(bucket, {"in/a": b"old\n", "in/b": b"b\n"})
    tasks = f"#amfs path here s3://{bucket}/in/\nt -b sh -i here -stdout out -a -c 'cat here/*'\n"
    well, why = run_after(tmp_path, lambda: server.client.put_object(Bucket=bucket, Key=name, Body=b"new\n"), tasks)
    assert (well, why) == (
        0, [f"cannot read its input: s3://{bucket}/in/: has changed since the run looked at it; --resume reads what is there now"]
    )  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_a_web_server_is_asked_before_and_after(tmp_path: Path) -> None:
    """It may send a file in which somebody writes."""
    web = Web(tmp_path, tmp_path / "log")
    requests = Requests(tmp_path / "log")
    try:
        (web.root / "a").write_bytes(b"a\n")
        (tmp_path / "tasks").write_text(f"#amfs path here {web.url}/a\nt -b cat -i here -stdout out -a here\n")
        done = run(tmp_path, "--local", "tasks")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert (tmp_path / "out").read_bytes() == b"a\n" and requests.of("/a") == {"HEAD": 2, "GET": 1}
        well, why = run_after(tmp_path, lambda: (web.root / "a").write_bytes(b"other\n"), (tmp_path / "tasks").read_text())
        assert well == 0 and len(why) == 1 and f"{web.url}/a: has changed since the run looked at it" in why[0], why
    finally:
        web.server.kill()


def test_what_is_not_given_under_an_identity_is_looked_at_by_the_node(tmp_path: Path) -> None:
    web, sftp = Web(tmp_path, tmp_path / "log", etags=False), Sftp(tmp_path)
    requests = Requests(tmp_path / "log")
    try:
        for name in ("a", "b"):
            (web.root / name).write_text(f"{name}\n")
        (tmp_path / "storage.toml").write_text(f'["{sftp.host}/"]\noptions = {{ key_filename = "{sftp.key}" }}\n')
        places = f"#amfs path a {web.url}/a\n#amfs path b {sftp.host}{web.root}/b\n"
        (tmp_path / "tasks").write_text(f"{places}t -b cat -i a b -stdout out -a a b\n")
        done = run(tmp_path, "--local", "--storage", str(tmp_path / "storage.toml"), "tasks")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert (tmp_path / "out").read_bytes() == b"a\nb\n" and requests.of("/a") == {"HEAD": 3, "GET": 1}
    finally:
        web.server.kill()
        sftp.server.kill()
