"""Load and dump at URLs by all nodes: shares, remains when somebody dies, keys that nobody sees, and large objects in ranges."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from fs_session import amfs, files_of_session, kill, running
from servers import S3, Web, s3_in_environment, web_of_a_module

from amfs.client.files import Files
from amfs.net.records import SessionRecord
from amfs.operations import loading_urls
from amfs.operations.loading import load
from amfs.operations.loading_common import gone
from amfs.operations.url_moves import PASSES, Portion, UrlMover
from amfs.remote import objects
from amfs.remote.opening import Storages
from amfs.remote.place import TRANSIENT, Kind, RemoteError
from amfs.remote.settings import Settings
from amfs.remote.uploads import Upload, older
from amfs.vocabulary import fs_requests as q
from amfs.vocabulary.attr import Attr
from amfs.vocabulary.url_moves import UrlFile

NODES = 3
END_S = 60.0


@pytest.fixture(scope="module")
def session() -> Iterator[SessionRecord]:
    with running(NODES) as session:
        yield session


files = pytest.fixture(name="files")(files_of_session)
s3 = pytest.fixture(scope="module", name="s3")(s3_in_environment)
web = pytest.fixture(scope="module", name="web")(web_of_a_module)


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "amfs", *arguments], stderr=subprocess.PIPE, text=True)


def until_some_are_there(files: Files, directory: str, count: int) -> None:
    end = time.monotonic() + END_S
    while not files.isdir(directory) or len(files.listdir(directory)) < count:
        assert time.monotonic() < end
        time.sleep(0.005)


def test_every_node_takes_a_share_of_the_bytes(s3: S3, files: Files) -> None:
    sizes = {f"{number:02}": 1000 * (number + 1) for number in range(30)}
    s3.put("shares", {f"in/{name}": name.encode() * (size // 2) for name, size in sizes.items()})
    done = json.loads(amfs("load", "--output", "json", "s3://shares/in", "amfs:/shares").stdout)
    assert (done["ok"], done["by"], done["files"]) == (True, "nodes", 30)
    held: Counter[int] = Counter()
    for name, size in sizes.items():
        [part] = files.locate(f"/shares/{name}")
        held[part.nodes[0]] += size
        assert files.read_bytes(f"/shares/{name}") == name.encode() * (size // 2)
    assert len(held) == NODES and max(held.values()) - min(held.values()) < max(sizes.values())
    done = json.loads(amfs("dump", "--output", "json", "amfs:/shares", "s3://shares/out").stdout)
    assert (done["ok"], done["by"], done["files"]) == (True, "nodes", 30)
    assert all(s3.content("shares", f"out/{name}") == name.encode() * (size // 2) for name, size in sizes.items())


def test_the_command_may_do_it_alone(s3: S3, files: Files) -> None:
    s3.put("alone", {"in/a": b"a", "in/b": b"b"})
    done = json.loads(amfs("load", "--by", "client", "--output", "json", "s3://alone/in", "amfs:/alone").stdout)
    assert (done["ok"], done["by"]) == (True, "client") and files.read_bytes("/alone/b") == b"b"
    done = json.loads(amfs("dump", "--by", "client", "--output", "json", "amfs:/alone", "s3://alone/out").stdout)
    assert (done["ok"], done["by"]) == (True, "client") and s3.content("alone", "out/a") == b"a"


def test_each_file_that_fails_is_named_and_the_others_come(s3: S3, files: Files) -> None:
    s3.put("some", {f"in/{name}": b"x" for name in "abc"})
    files.makedirs("/some/b")
    done = amfs("load", "s3://some/in", "amfs:/some")
    assert done.returncode == 1 and done.stderr == "amfs: load: /some/b: Is a directory\n", done.stderr
    assert files.read_bytes("/some/a") == files.read_bytes("/some/c") == b"x"


def test_keys_are_in_no_log(s3: S3, files: Files, session: SessionRecord, tmp_path: Path) -> None:
    secret = "a-key-that-nobody-sees"
    s3.put("secret", {"in/a": b"a"})
    settings = tmp_path / "storage.toml"
    settings.write_text(f'["s3://"]\nendpoint = "{s3.endpoint}"\naccess_key_id = "k"\nsecret_access_key = "{secret}"\n')
    settings.chmod(0o600)
    files.makedirs("/secret/a")
    done = amfs("load", "--storage", str(settings), "s3://secret/in", "amfs:/secret")  # a fault, so that something is logged
    assert done.returncode == 1 and secret not in done.stderr
    looked = 0
    for place in (Path(os.environ["AMFS_RUN_DIR"]), Path(os.environ["XDG_STATE_HOME"])):
        for path in place.rglob("*"):
            if path.is_file():
                looked += 1
                assert secret.encode() not in path.read_bytes(), path
    assert looked
    for node in session.nodes:
        assert secret.encode() not in Path(f"/proc/{node.pid}/cmdline").read_bytes()


def test_a_load_that_is_killed_leaves_no_half_and_goes_on(s3: S3, files: Files) -> None:
    s3.put("killed", {f"{number:03}": b"x" * 5000 for number in range(200)})
    load = started("load", "s3://killed/", "amfs:/killed")
    until_some_are_there(files, "/killed", 5)
    load.send_signal(signal.SIGKILL)
    load.communicate(timeout=END_S)
    end = time.monotonic() + END_S
    there = files.listdir("/killed")
    while any(len(name) != 3 for name in there):  # nodes end what they have begun
        there = files.listdir("/killed")
        assert time.monotonic() < end
        time.sleep(0.01)
    assert all(files.info(f"/killed/{name}").size == 5000 for name in there)
    assert amfs("load", "s3://killed/", "amfs:/killed").returncode == 0
    assert len(files.listdir("/killed")) == 200


def test_what_a_node_that_dies_had_comes_by_the_others(s3: S3) -> None:
    s3.put("dies", {f"{number:03}": f"{number:03}".encode() for number in range(150)})
    with running(NODES) as session, Files() as files:
        load = started("load", "s3://dies/", "amfs:/dies")
        until_some_are_there(files, "/dies", 5)
        kill(session, NODES - 1)
        _, told = load.communicate(timeout=END_S)
        assert (load.returncode, told) == (0, ""), told
        assert {name: files.read_bytes(f"/dies/{name}") for name in files.listdir("/dies")} == {
            f"{number:03}": f"{number:03}".encode() for number in range(150)
        }


def test_files_that_went_with_a_node_after_the_last_pass_are_named(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each pass one more node dies that has done its share."""
    objects_of_s3 = {f"{number:03}": f"{number:03}".encode() for number in range(40)}
    s3.put("passes", objects_of_s3)
    with running(PASSES + 1) as session, Files() as files:
        passes: list[int] = []

        class Mover(UrlMover):
            def run(self, portions: Iterable[Portion]) -> list[UrlFile]:
                left = super().run(portions)
                passes.append(PASSES - len(passes))
                kill(session, passes[-1])
                end = time.monotonic() + END_S
                while passes[-1] in {member.node for member in files.connection.members()}:
                    assert time.monotonic() < end
                    time.sleep(0.05)
                return left

        monkeypatch.setattr(loading_urls, "UrlMover", Mover)
        done = load(files, "s3://passes/", "/passes")
        assert passes == list(range(PASSES, 0, -1))
        assert not done.ok and set(done.failed.values()) == {"it went with a node that died; say it again to go on"}
        there = {name: files.read_bytes(f"/passes/{name}") for name in objects_of_s3 if f"/passes/{name}" not in done.failed}
        assert there and there == {name: objects_of_s3[name] for name in there}
        monkeypatch.undo()
        assert load(files, "s3://passes/", "/passes").ok
        assert {name: files.read_bytes(f"/passes/{name}") for name in files.listdir("/passes")} == objects_of_s3


def test_files_of_a_dead_node_are_gone_before_their_shards_have_heard_of_the_death(files: Files) -> None:
    """No node has died: a shard that has not heard of a death answers the same."""
    paths = [b"/gone-%d" % number for number in range(200)]
    for path in paths:
        files.write_bytes(path, path)
    inodes = [attr.ino for attr in files.info_many(paths) if isinstance(attr, Attr)]
    _, holdings = files.connection.call(q.Where((inodes[0],)))
    (holding,) = holdings
    assert isinstance(holding, q.Holding)
    others = set(range(NODES)) - set(holding.holders)
    assert gone(files, paths, holding.holders) == [True] * 200
    assert gone(files, paths, others) == gone(files, paths, ()) == [False] * 200
    files.remove(paths[7])
    assert gone(files, paths, ()) == [path == paths[7] for path in paths]


def fetched(url: str, place: Path, told: objects.Told = lambda count: None) -> bytes:
    remote, key = Storages(Settings()).place(url)
    with open(place / "fetched", "w+b") as file:
        remote.fetch(remote.stat(key), file.fileno(), told)
    return (place / "fetched").read_bytes()


def test_a_directory_of_a_web_server_comes_whole(web: Web, files: Files) -> None:
    """Names that begin as a URL does among them: fsspec leaves these out."""
    names = ["httpd.conf", "http:", "https.log", "a b", "50%", "x?y=1", "a&b", "é", "sub/http.txt"]
    for name in names:
        (web.root / "named" / name).parent.mkdir(parents=True, exist_ok=True)
        (web.root / "named" / name).write_text(name)
    assert amfs("load", f"{web.url}/named/", "amfs:/named").returncode == 0
    assert {*files.listdir("/named")} == {name.partition("/")[0] for name in names}
    assert files.listdir("/named/sub") == ["http.txt"]


def test_a_large_object_comes_in_ranges(web: Web, tmp_path: Path) -> None:
    content = os.urandom(1 << 20) * 65 + b"end"
    (web.root / "large").write_bytes(content)
    pieces: list[int] = []
    assert fetched(f"{web.url}/large", tmp_path, pieces.append) == content
    assert sum(pieces) == len(content) and len(pieces) == 9


def test_a_large_object_that_changes_between_its_ranges_is_no_mixture(web: Web, tmp_path: Path) -> None:
    path = web.root / "changing"
    path.write_bytes(b"A" * (70 << 20))
    os.utime(path, (0, 0))  # its ETag has the time in seconds

    def change(count: int) -> None:
        if path.stat().st_mtime == 0:
            with open(path, "r+b") as file:
                file.write(b"B" * 100)

    with pytest.raises(RemoteError) as told:
        fetched(f"{web.url}/changing", tmp_path, change)
    assert told.value.kind is Kind.CHANGED


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Knows no ranges."""

    def log_message(self, *about: object) -> None:
        pass


def test_a_large_object_comes_from_a_server_without_ranges(tmp_path: Path) -> None:
    content = os.urandom(1 << 20) * 64
    (tmp_path / "large").write_bytes(content)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path))) as server:
        server.handle_error = lambda request, address: None  # type: ignore[method-assign, assignment]  # it is hung up on
        threading.Thread(target=server.serve_forever).start()
        try:
            assert fetched(f"http://127.0.0.1:{server.server_address[1]}/large", tmp_path) == content
        finally:
            server.shutdown()


class Ranges(http.server.BaseHTTPRequestHandler):
    """S3 with one large object, in ranges. It answers each range only when another one is asked for, too; and the first byte that it sends
    is another one ``damaged`` times."""

    content = os.urandom(1 << 20) * 80
    damaged = 0
    pairs = threading.Barrier(2, timeout=END_S)
    protocol_version = "HTTP/1.1"

    def tell(self, status: int, size: int, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        tag = hashlib.md5(self.content).hexdigest()
        for name, value in (("ETag", f'"{tag}"'), ("Content-Length", str(size)), *headers):
            self.send_header(name, value)
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()

    def do_HEAD(self) -> None:
        self.tell(200, len(self.content))

    def do_GET(self) -> None:
        if "Range" not in self.headers:
            self.do_HEAD()
            self.wfile.write(self.content)
            return
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        self.pairs.wait()
        piece = bytearray(self.content[first : last + 1])
        if not first and self.damaged:
            type(self).damaged -= 1
            piece[0] ^= 1
        self.tell(206, len(piece), ("Content-Range", f"bytes {first}-{last}/{len(self.content)}"))
        self.wfile.write(piece)

    def log_message(self, *about: object) -> None:
        pass


@pytest.mark.parametrize("damaged", [0, 1])
def test_all_ranges_come_at_the_same_time_and_are_summed_in_their_order(damaged: int, tmp_path: Path) -> None:
    handler = type("Handler", (Ranges,), {"damaged": damaged})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, pytest.MonkeyPatch.context() as patch:
        threading.Thread(target=server.serve_forever).start()
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_address[1]}")
        patch.setenv("AWS_ACCESS_KEY_ID", "k")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        again: list[str] = []
        take = objects._md5
        patch.setattr(objects, "_md5", lambda pieces: again.append(take(pieces)) or again[-1])  # type: ignore[func-returns-value]
        try:
            if damaged:
                with pytest.raises(RemoteError) as told:
                    fetched("s3://sums/large", tmp_path)
                assert told.value.kind is Kind.DAMAGED
            else:
                assert fetched("s3://sums/large", tmp_path) == Ranges.content
                assert not again  # nothing was read after all had come
        finally:
            server.shutdown()


class Bucket(http.server.BaseHTTPRequestHandler):
    """S3 with one object, whose bytes are damaged on their way for the first ``damaged`` times."""

    tag, damaged, given = "", 0, 0
    content = b"content"

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("ETag", f'"{self.tag}"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        type(self).given += 1
        self.wfile.write(b"CONTENT" if self.given <= self.damaged else self.content)

    def log_message(self, *about: object) -> None:
        pass


@pytest.mark.parametrize(("tag", "damaged"), [(hashlib.md5(b"content").hexdigest(), 1), ("0" * 32, 0)])
def test_what_nodes_fetch_has_the_sum_that_the_storage_tells(tag: str, damaged: int, tmp_path: Path) -> None:
    """Damage is noticed, and the object fetched again. Where a bucket encrypts with keys of its own, the tag is no sum."""
    handler = type("Handler", (Bucket,), {"tag": tag, "damaged": damaged})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, pytest.MonkeyPatch.context() as patch:
        threading.Thread(target=server.serve_forever).start()
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_address[1]}")
        patch.setenv("AWS_ACCESS_KEY_ID", "k")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        try:
            if damaged:
                with pytest.raises(RemoteError) as told:
                    fetched("s3://sums/object", tmp_path)
                assert told.value.kind is Kind.DAMAGED and told.value.kind in TRANSIENT
            assert fetched("s3://sums/object", tmp_path) == b"content"
        finally:
            server.shutdown()
    assert handler.given == (3 if damaged else 2)  # type: ignore[attr-defined]


class Expiring(Bucket):
    """Three objects. At the first question for a content the key ``old`` ends, and the file ``profile`` has the key ``new``."""

    profile: Path
    refused = 0

    def do_GET(self) -> None:
        if "list-type" in self.path:
            one = f'<Size>7</Size><LastModified>2026-01-01T00:00:00Z</LastModified><ETag>"{self.tag}"</ETag>'
            listed = "".join(f"<Contents><Key>in/{name}</Key>{one}</Contents>" for name in "abc")
            text = f"<ListBucketResult><Name>keys</Name><IsTruncated>false</IsTruncated>{listed}</ListBucketResult>".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
        elif "Credential=old/" in self.headers["Authorization"]:
            type(self).refused += 1
            self.profile.write_text("[default]\naws_access_key_id = new\naws_secret_access_key = s\n")
            self.send_error(403)
        else:
            super().do_GET()


def test_keys_that_are_renewed_in_their_file_are_taken_up(session: SessionRecord, files: Files, tmp_path: Path) -> None:
    profile = tmp_path / "credentials"
    profile.write_text("[default]\naws_access_key_id = old\naws_secret_access_key = s\n")
    handler = type("Handler", (Expiring,), {"tag": hashlib.md5(b"content").hexdigest(), "profile": profile})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, pytest.MonkeyPatch.context() as patch:
        threading.Thread(target=server.serve_forever).start()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_address[1]}")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
        try:
            done = amfs("load", "s3://keys/in/", "amfs:/keys")
        finally:
            server.shutdown()
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert handler.refused  # type: ignore[attr-defined]
    assert {files.read_bytes(f"/keys/{name}") for name in "abc"} == {b"content"}


def unfinished(s3: S3, bucket: str, key: str) -> str:
    """Begin to upload in parts, and go away."""
    number = s3.client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    s3.client.upload_part(Bucket=bucket, Key=key, UploadId=number, PartNumber=1, Body=b"x" * 1000)
    return str(number)


def left(s3: S3, bucket: str) -> list[str]:
    return [one["Key"] for one in s3.client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]


def test_parts_of_unfinished_uploads_are_removed(s3: S3, files: Files) -> None:
    keys = ["run/a+b ü", "run/x", "other"]
    s3.put("parts", {"run/there": b"there"})
    for key in keys:
        unfinished(s3, "parts", key)
    done = amfs("scrub", "--remote", "s3://parts/run/")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.splitlines()[-1] == "2 unfinished uploads removed", done
    assert left(s3, "parts") == ["other"] and s3.keys("parts") == ["run/there"]
    files.write_bytes("/parts", b"content")
    assert amfs("dump", "amfs:/parts", "s3://parts/other").returncode == 0  # its own are removed by a dump
    assert left(s3, "parts") == [] and s3.content("parts", "other") == b"content"
    done = amfs("scrub", "--remote", "s3://nowhere/")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "no such bucket" in done.stderr
    done = amfs("scrub", "--remote", "https://example.org/")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "tells nothing of unfinished uploads" in done.stderr


def test_only_old_uploads_are_removed() -> None:
    found = [Upload("old", "1", 1000.0), Upload("new", "2", 1990.0)]
    assert older(found, 2000.0, 60.0) == found[:1] and older(found, 2000.0, 0.0) == found


def test_diff_takes_urls(s3: S3, files: Files) -> None:
    s3.put("diff", {"a/one": b"1", "a/two": b"22", "a/mark/": b"", "b/x": b"22", "b/y": b"1", "c/x": b"23", "c/y": b"1"})
    files.makedirs("/diff")
    files.write_bytes("/diff/1", b"22")
    files.write_bytes("/diff/2", b"1")
    for first, second in (("s3://diff/a", "amfs:/diff"), ("amfs:/diff", "s3://diff/b/"), ("s3://diff/a", "s3://diff/b")):
        done = amfs("diff", first, second)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done
    done = amfs("diff", "amfs:/diff", "s3://diff/c")
    assert (done.returncode, done.stdout) == (1, "< /diff/1\n> s3://diff/c/x\n"), done
    done = amfs("diff", "amfs:/diff", "s3://diff/none")
    assert done.returncode == 2 and done.stderr == "amfs: diff: s3://diff/none: no such object\n", done.stderr


class Listed(http.server.BaseHTTPRequestHandler):
    """A page that names one file. A request for the file is answered with ``status``; 0: the connection ends."""

    status = 0

    def do_HEAD(self) -> None:
        page = b'<a href="one">one</a>' if self.path.endswith("/") else b""
        if page or self.status:
            self.send_response(200 if page else self.status)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
        if self.command == "GET":
            self.wfile.write(page)

    do_GET = do_HEAD

    def log_message(self, *about: object) -> None:
        pass


@pytest.mark.parametrize(("status", "kind"), [(403, Kind.DENIED), (404, Kind.MISSING), (503, Kind.BUSY), (0, Kind.UNREACHABLE)])
def test_a_listed_file_is_missing_only_if_the_server_says_so(status: int, kind: Kind) -> None:
    """A server that goes away after the page has come would look like one without files."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Listed,), {"status": status})) as server:
        threading.Thread(target=server.serve_forever).start()
        remote, top = Storages(Settings()).place(f"http://127.0.0.1:{server.server_address[1]}/in/")
        try:
            with pytest.raises(RemoteError) as told:
                list(remote.list(top))
        finally:
            server.shutdown()
    assert told.value.kind is kind
