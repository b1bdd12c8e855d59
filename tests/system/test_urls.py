"""Load and dump at URLs, with real servers: names, contents, and what people are told when something is wrong."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from daily import daily
from fs_session import amfs, files_of_session, fine, refused, two_nodes
from servers import S3, Sftp, Web, free_port, s3_in_environment, web_of_a_module

from amfs.client.files import Files
from amfs.remote import objects, systems
from amfs.remote.opening import Storages
from amfs.remote.place import Found, Kind, Remote, RemoteError
from amfs.remote.settings import Settings
from amfs.remote.settings import load as load_settings

NAMES = ["plain", "with space", "a+b", "p%25q", "q?m", "h#", "br[1]", "st*", "semi;", "back\\slash", "ti~", "ü✓", "d/below", ".hidden"]

session = pytest.fixture(scope="module", name="session")(two_nodes)
files = pytest.fixture(name="files")(files_of_session)
s3 = pytest.fixture(scope="module", name="s3")(s3_in_environment)
web = pytest.fixture(scope="module", name="web")(web_of_a_module)


def test_names_and_contents_come_from_s3_and_go_back(files: Files, s3: S3) -> None:
    content = {name: name.encode() * 3 for name in NAMES}
    s3.put("names", {f"in/{name}": data for name, data in content.items()})
    fine("load", "s3://names/in", "amfs:/names")
    for name, data in content.items():
        assert files.read_bytes(f"/names/{name}") == data
    fine("dump", "amfs:/names", "s3://names/out/")
    assert {name: s3.content("names", f"out/{name}") for name in content} == content
    fine("load", "s3://names/in/br[1]", "amfs:/one")  # as it is written, before it is a pattern
    assert files.read_bytes("/one") == content["br[1]"]
    fine("load", "s3://names/in/*[lm]*", "amfs:/some/")
    assert sorted(files.listdir("/some")) == sorted(name for name in NAMES if ("l" in name or "m" in name) and "/" not in name)


def test_ls_cat_put_and_get_take_urls(s3: S3, files: Files) -> None:
    s3.put("faces", {"a/one": b"1", "a/two": b"22"})
    assert amfs("ls", "s3://faces/a/").stdout == "s3://faces/a/one\ns3://faces/a/two\n"
    assert [line.split()[0] for line in amfs("ls", "-l", "s3://faces/a").stdout.splitlines()] == ["1", "2"]
    assert amfs("cat", "s3://faces/a/two", "s3://faces/a/one").stdout == "221"
    fine("put", "s3://faces/a", "amfs:/faces")
    assert files.read_bytes("/faces/two") == b"22"
    fine("get", "amfs:/faces/two", "s3://faces/b")
    assert s3.content("faces", "b") == b"22"
    refused(2, "s3://faces/none: no such object", "ls", "s3://faces/none")
    refused(1, "s3://faces/none: no such object", "cat", "s3://faces/none")
    refused(2, "is a URL, and other names are not", "cat", "s3://faces/b", "amfs:/faces/two")
    assert amfs("cat", "s3://faces/a/*").stdout == "122"
    for directory in ("s3://faces/a", "s3://faces/a/", "s3://faces/"):  # not all that is in a bucket
        refused(1, f"{directory}: Is a directory", "cat", directory)
    refused(2, "s3://faces/b: is a URL, where a path of the file system (amfs:/) is meant", "get", "s3://faces/b", "here")
    refused(2, "s3://faces/b: is a URL", "put", __file__, "s3://faces/b")


def test_a_name_that_is_not_utf_8_is_told_and_the_others_go(s3: S3, files: Files) -> None:
    s3.put("bytes", {"any": b""})
    files.makedirs("/bytes")
    files.write_bytes(b"/bytes/\xff", b"1")
    files.write_bytes(b"/bytes/good", b"2")
    for way in ("nodes", "client"):
        refused(1, "the name is not UTF-8", "dump", "--by", way, "amfs:/bytes", f"s3://bytes/{way}/")
        assert s3.content("bytes", f"{way}/good") == b"2"


def test_a_directory_of_one_object_is_a_directory(s3: S3, files: Files) -> None:
    s3.put("single", {"top/file": b"f"})
    fine("load", "s3://single/top", "amfs:/single")
    assert files.read_bytes("/single/file") == b"f"
    fine("load", "s3://single/top/file", "amfs:/single2")
    assert files.read_bytes("/single2") == b"f"


def test_what_is_there_already_is_left(s3: S3, files: Files) -> None:
    s3.put("again", {f"in/{number}": b"x" * number for number in range(20)})
    for expected in ("20 files, 190 B", "0 files, 0 B"):
        assert expected in amfs("load", "-v", "s3://again/in", "amfs:/again").stderr
    for expected in ("20 files, 190 B", "0 files, 0 B"):
        assert expected in amfs("dump", "-v", "amfs:/again", "s3://again/out").stderr
    files.write_bytes("/again/5", b"other")  # of the same size
    assert "1 file, 5 B" in amfs("dump", "-v", "amfs:/again", "s3://again/out").stderr
    assert s3.content("again", "out/5") == b"other"


@pytest.mark.parametrize("data", [bytes(1 << 20), bytes(100_000), b"x" + bytes(3 << 16) + b"x", b"x" * 100_000])
def test_files_with_zeros_go_as_others(s3: S3, files: Files, data: bytes) -> None:
    s3.put("zeros", {})
    files.write_bytes("/zeros", data)
    fine("dump", "amfs:/zeros", "s3://zeros/out")
    assert s3.content("zeros", "out") == data


def test_large_objects_come_and_go_in_pieces(s3: S3, files: Files) -> None:
    content = os.urandom(1 << 20) * 70
    s3.put("large", {"in": content})
    fine("load", "s3://large/in", "amfs:/large")
    assert files.read_bytes("/large") == content
    fine("dump", "amfs:/large", "s3://large/out")
    assert s3.content("large", "out") == content
    assert "0 files" in amfs("dump", "-v", "amfs:/large", "s3://large/out").stderr


def test_a_key_that_ends_with_a_slash_is_a_directory(s3: S3, files: Files) -> None:
    s3.put("marks", {"top/empty/": b"", "top/full/": b"", "top/full/file": b"f"})
    fine("load", "s3://marks/top", "amfs:/marks")
    assert files.isdir("/marks/empty") and files.read_bytes("/marks/full/file") == b"f"


@pytest.mark.parametrize("how", daily([signal.SIGINT, signal.SIGTERM, signal.SIGKILL], signal.SIGKILL))
def test_a_dump_that_is_ended_leaves_the_old_object(s3: S3, files: Files, how: int) -> None:
    bucket = f"ended-{how}"
    s3.put(bucket, {"object": b"old"})
    new = os.urandom(1 << 20) * 100
    files.write_bytes("/new", new)
    for number in range(2):
        dump = subprocess.Popen([sys.executable, "-m", "amfs", "dump", "amfs:/new", f"s3://{bucket}/object"], stderr=subprocess.PIPE)
        time.sleep(0.4 + 0.25 * number)
        dump.send_signal(how)
        dump.communicate(timeout=60)
        there = s3.content(bucket, "object")
        assert there in (b"old", new), f"{len(there)} bytes are there"
        assert s3.keys(bucket) == ["object"]
    fine("dump", "amfs:/new", f"s3://{bucket}/object")
    assert s3.content(bucket, "object") == new


def test_what_people_must_change_is_said_in_one_line(s3: S3, files: Files, tmp_path: Path) -> None:
    files.write_bytes("/file", b"content")
    s3.put("there", {"key": b""})
    refused(2, "s3://nowhere/x/: no such bucket", "load", "s3://nowhere/x", "amfs:/x")
    refused(2, "s3://nowhere/x: no such bucket", "dump", "amfs:/file", "s3://nowhere/x")
    assert "nowhere" not in [one["Name"] for one in s3.client.list_buckets()["Buckets"]]
    refused(1, "s3://there/nothing: no such object", "load", "s3://there/nothing", "amfs:/x")
    refused(2, "s3:///x: names no bucket and no host", "load", "s3:///x", "amfs:/x")
    refused(2, "is no pattern", "load", "s3://there/a[z-a]b", "amfs:/x")
    refused(2, "nosuch://x/y: no storage is known for nosuch://", "load", "nosuch://x/y", "amfs:/x")
    refused(2, "no such file of storage settings", "load", "--storage", str(tmp_path / "none"), "s3://there/key", "amfs:/x")
    settings = tmp_path / "settings"
    for value, words in {
        "endpoint = 5": "endpoint must be a text in quotation marks",
        'anonymous = "no"': "anonymous must be true or false",
        'options = "x"': "options must be a table",
        "\xff": "is not text in UTF-8",
    }.items():
        settings.write_bytes(f'["s3://there/"]\n{value}\n'.encode("latin-1"))
        refused(2, words, "load", "--storage", str(settings), "s3://there/key", "amfs:/x")
    empty = f"http://127.0.0.1:{free_port()}"
    refused(2, "cannot be reached: Connection refused", "load", "s3://there/key", "amfs:/x", AWS_ENDPOINT_URL=empty)
    refused(2, "cannot be reached: Connection refused", "load", f"{empty}/x", "amfs:/x")
    refused(2, "cannot be reached: it does not speak TLS", "load", s3.endpoint.replace("http:", "https:") + "/x", "amfs:/x")
    for url in ("s3://the re/key", "http://the re/key"):
        refused(2, "has such a name", "load", url, "amfs:/x")
    refused(2, "does not begin with https:// or http://", "ls", "s3://there/", AWS_ENDPOINT_URL=s3.endpoint.partition("//")[2])
    nobody = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": str(tmp_path)}
    refused(2, "have no profile 'nosuch'", "ls", "s3://there/", **nobody, AWS_PROFILE="nosuch")
    refused(2, "a key with an empty part, '..' or a control character", "load", "s3://there/a/../key", "amfs:/x")


def test_settings_say_how_each_storage_is_reached(s3: S3, files: Files, tmp_path: Path) -> None:
    s3.put("mine", {"in": b"content"})
    settings = tmp_path / "storage.toml"
    settings.write_text(f'["s3://mine/"]\nendpoint = "{s3.endpoint}"\naccess_key_id = "k"\nsecret_access_key = "topsecret"\n')
    settings.chmod(0o644)
    elsewhere = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}
    refused(2, f"chmod 600 {settings}", "load", "--storage", str(settings), "s3://mine/in", "amfs:/mine", **elsewhere)
    settings.chmod(0o600)
    fine("load", "--storage", str(settings), "s3://mine/in", "amfs:/mine", **elsewhere)
    fine("load", "s3://mine/in", "amfs:/mine2", AMFS_STORAGE=str(settings), **elsewhere)
    assert files.read_bytes("/mine") == files.read_bytes("/mine2") == b"content"
    settings.write_text('["s3://mine/"]\nendpont = "x"\n')
    refused(2, "has 'endpont'; known are", "load", "--storage", str(settings), "s3://mine/in", "amfs:/mine")


def test_a_storage_that_goes_away_is_told_once_and_the_load_goes_on_later(files: Files) -> None:
    server = S3()
    try:
        server.put("many", {str(number): b"x" * 100 for number in range(300)})
        command = [sys.executable, "-m", "amfs", "load", "s3://many/", "amfs:/many"]
        load = subprocess.Popen(command, env={**os.environ, **server.environment}, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 60
        while not files.isdir("/many") or len(files.listdir("/many")) < 10:
            assert time.monotonic() < end and load.poll() is None
            time.sleep(0.005)
        server.server.kill()
        _, told = load.communicate(timeout=100)
        assert load.returncode == 1 and told.count("\n") == 1 and "say it again to go on" in told, told
        server.server.start()
        server.put("many", {str(number): b"x" * 100 for number in range(300)})
        fine("load", "s3://many/", "amfs:/many", **server.environment)
        assert len(files.listdir("/many")) == 300
    finally:
        server.server.kill()


def test_a_web_server_gives_files_and_directories_under_their_names(web: Web, files: Files) -> None:
    for name in ("plain", "with space", "a+b", "ü"):
        (web.root / name).write_bytes(name.encode())
    fine("load", f"{web.url}/with%20space", "amfs:/web/one")
    assert files.read_bytes("/web/one") == b"with space"
    fine("load", f"{web.url}/", "amfs:/webs")
    assert {name: files.read_bytes(f"/webs/{name}") for name in files.listdir("/webs")} == {
        name: name.encode() for name in ("plain", "with space", "a+b", "ü")
    }
    refused(2, "writes to no web server", "dump", "amfs:/web/one", f"{web.url}/plain")


def test_the_directory_of_a_web_server_ends_with_a_slash(web: Web) -> None:
    (web.root / "slash").mkdir()
    refused(2, "a directory has a slash at its end", "load", f"{web.url}/slash", "amfs:/x")


def test_no_keys_are_said_to_be_missing_whatever_the_cloud_answers(s3: S3) -> None:
    """A machine outside of a cloud may have something else at the address that tells of keys."""
    place = Storages(load_settings()).place("s3://there/key")
    answer = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 6ms - Server returned non-2xx status code: "
    for status in (403, 404, 500):
        fault = place.remote._error(Exception(f"{answer}{status}"), "key")  # type: ignore[attr-defined]
        assert fault.kind is Kind.DENIED and "no keys were found" in str(fault)


def test_a_name_that_is_no_utf_8_stays_the_name_that_it_is() -> None:
    """Else all such names of a listing become one file."""
    assert os.fsencode(systems.name_of("a%FF%80z", True)) == b"a\xff\x80z"


def test_a_file_that_changes_behind_a_web_server_is_never_a_mixture(web: Web) -> None:
    path = web.root / "changes"
    path.write_bytes(b"A" * (150 << 20))
    os.utime(path, (0, 0))  # its ETag has the time in seconds
    remote, key = Storages(Settings()).place(f"{web.url}/changes")
    pieces = remote.read(remote.stat(key))
    assert set(next(pieces)) == {65}
    with open(path, "r+b") as file:  # in place, as a program that writes its log
        file.write(b"B" * (150 << 20))
    with pytest.raises(RemoteError) as told:
        for _ in pieces:
            pass
    assert told.value.kind is Kind.CHANGED


class Silent(BaseHTTPRequestHandler):
    """Tells neither an ETag nor a time."""

    def do_HEAD(self) -> None:
        self.send_response_only(200)
        self.send_header("Content-Length", "3")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(b"abc")

    def log_message(self, *about: object) -> None:
        pass


def test_a_server_that_stops_in_the_middle_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "SILENT_S", 0.5)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 100\r\n\r\nhalf")
                connection.recv(4096)  # until it hangs up

        thread = threading.Thread(target=answer)
        thread.start()
        remote, key = Storages(Settings()).place(f"http://127.0.0.1:{server.getsockname()[1]}/x")
        with pytest.raises(RemoteError) as told:
            b"".join(remote.read(Found(key, 100, '"1"')))
        thread.join()
    assert told.value.kind is Kind.UNREACHABLE


def test_what_could_change_unnoticed_is_refused(files: Files) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            url = f"http://127.0.0.1:{server.server_address[1]}/x"
            refused(1, "a change while it is read could not be noticed", "load", url, "amfs:/silent")
        finally:
            server.shutdown()
    assert not files.exists("/silent")


def test_a_directory_that_cannot_be_read_is_not_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk of the library leaves such a directory out, and a load would lack its files without a word."""
    remote, key = Storages(Settings()).place("memory://listing/")
    for name in ("a", "deep/b"):
        remote.write(f"/listing/{name}", [b"x"])
    assert [found.key for found in remote.list(key)] == ["/listing/a", "/listing/deep/b"]
    listed = remote._system.ls  # type: ignore[attr-defined]

    def ls(path: str, detail: bool) -> object:
        if path.endswith("deep"):
            raise OSError("broken")
        return listed(path, detail=detail)

    monkeypatch.setattr(remote._system, "ls", ls)  # type: ignore[attr-defined]
    with pytest.raises(RemoteError, match="broken"):
        list(remote.list(key))


def test_sftp_keeps_the_old_file_until_the_new_one_is_whole(files: Files, tmp_path: Path) -> None:
    server = Sftp(tmp_path)
    try:
        settings = tmp_path / "storage.toml"
        settings.write_text(f'["{server.host}/"]\noptions = {{ key_filename = "{server.key}" }}\n')
        (tmp_path / "data").mkdir()
        url = f"{server.host}{tmp_path}/data"
        content = {"plain": b"p", "with space": b"s", "h#": b"h", "deep/er": b"d"}
        for name, data in content.items():
            files.makedirs(f"/ssh/{name}".rpartition("/")[0], exist_ok=True)
            files.write_bytes(f"/ssh/{name}", data)
        for _ in range(2):  # over what is there, too
            fine("dump", "--storage", str(settings), "amfs:/ssh", url)
            files.write_bytes("/ssh/plain", b"other")
            content["plain"] = (tmp_path / "data" / "plain").read_bytes()
        assert {name: (tmp_path / "data" / name).read_bytes() for name in content} == {**content, "plain": b"other"}
        assert not [name for name in os.listdir(tmp_path / "data") if name.startswith(".amfs-")]
        fine("load", "--storage", str(settings), url, "amfs:/back")
        assert files.read_bytes("/back/deep/er") == b"d" and files.read_bytes("/back/h#") == b"h"
        server.kill_with_connections()
        server.server.start()  # the nodes live on, and connect again
        files.write_bytes("/ssh/plain", b"after")
        fine("dump", "--storage", str(settings), "amfs:/ssh", url)
        assert (tmp_path / "data" / "plain").read_bytes() == b"after"
        refused(2, "permission denied", "load", url, "amfs:/x", HOME=str(tmp_path))
    finally:
        server.server.kill()


def test_a_dump_to_sftp_says_why_it_fails(files: Files, tmp_path: Path) -> None:
    server, data = Sftp(tmp_path), tmp_path / "data"
    data.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", data], check=False).returncode == 0
    try:
        settings = tmp_path / "storage.toml"
        settings.write_text(f'["{server.host}/"]\noptions = {{ key_filename = "{server.key}" }}\n')
        (data / "file").write_bytes(b"old")
        files.makedirs("/why/below")
        files.write_bytes("/why/below/file", b"new")
        files.write_bytes("/why/large", bytes(2 << 20))
        files.write_bytes(b"/why/\xff", b"new")
        for way in ("nodes", "client"):
            given = ("dump", "--by", way, "--storage", str(settings))
            for target in ("file", "file/x"):
                refused(1, "its directory cannot be made", *given, "amfs:/why/below", f"{server.host}{data}/{target}")
            refused(1, "the name is not UTF-8", *given, b"amfs:/why/\xff".decode(errors="surrogateescape"), f"{server.host}{data}/")
            if mounted:
                refused(1, "not all of it came there", *given, "amfs:/why/large", f"{server.host}{data}/")
            assert [(path.name, path.read_bytes()) for path in data.iterdir()] == [("file", b"old")]
    finally:
        if mounted:
            subprocess.run(["umount", "-l", data], check=True)
        server.server.kill()


def test_unfinished_files_on_sftp_are_removed(files: Files, tmp_path: Path) -> None:
    """By the next writing when the server answers again, by a scrub, and by a dump of the same key a day later."""
    server, data = Sftp(tmp_path), tmp_path / "data"
    name = "n" * 120  # of which the unfinished file has the beginning
    try:
        settings = tmp_path / "storage.toml"
        settings.write_text(f'["{server.host}/"]\noptions = {{ key_filename = "{server.key}" }}\n')

        def left() -> list[Path]:
            return sorted(path for path in data.rglob("*") if path.name.startswith(".amfs-") and path.name != ".amfs-directory")

        def killed(name: str) -> tuple[Storages, Remote]:
            """Write, and the server dies midway."""
            storages = Storages(load_settings(str(settings)))
            remote, key = storages.place(f"{server.host}{data}/{name}")

            def pieces() -> Iterator[bytes]:
                yield b"half" * 100_000
                server.kill_with_connections()
                yield b"more"

            with pytest.raises(RemoteError) as caught:
                remote.write(key, pieces())
            assert caught.value.kind is Kind.UNREACHABLE
            server.server.start()
            return storages, remote

        _, remote = killed(f"d/{name}")
        assert len(left()) == 1
        remote.write(f"{data}/d/{name}", iter([b"whole"]))
        assert left() == [] and (data / "d" / name).read_bytes() == b"whole"

        for one in (f"d/{name}", "other"):
            killed(one)[0].close()  # nobody tries again
        (data / "d" / ".amfs-directory").write_bytes(b"a record")
        [other, of_name] = left()
        scrub = ("scrub", "--storage", str(settings), "--remote")
        assert amfs(*scrub, f"{server.host}{data}/d/").stdout == "0 unfinished uploads removed, 1 left that began later\n"
        url = f"{server.host}{data}/d/{name}"
        done = amfs(*scrub, url, "--older", "0")
        assert done.stdout == f"{server.host}{of_name}\n1 unfinished uploads removed\n" and left() == [other]

        files.write_bytes("/other", b"all")
        fine("dump", "--storage", str(settings), "amfs:/other", f"{server.host}{data}/other")
        assert left() == [other]  # somebody may be writing it
        os.utime(other, (time.time() - 90_000,) * 2)
        fine("dump", "--storage", str(settings), "amfs:/other", f"{server.host}{data}/other")
        assert left() == [] and (data / "other").read_bytes() == b"all" and (data / "d" / ".amfs-directory").exists()
    finally:
        server.server.kill()
