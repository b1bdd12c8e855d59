"""``chirp://``: a real chirp_server, and what goes there and comes back by its tools."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fs_session import amfs, files_of_session, fine, refused, two_nodes
from servers import Server, free_port
from waiting import until

from amfs.client.files import Files
from amfs.errors import UsageError
from amfs.remote import chirp
from amfs.remote.opening import Storages
from amfs.remote.place import Kind, RemoteError
from amfs.remote.settings import Settings

MISSING = [tool for tool in ("chirp", "chirp_get", "chirp_server") if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)} here (Debian package coop-computing-tools)")

NAMES = [" two  blanks;h#", "a+b%25?[1]*", "back\\", "quo'ted\"", "-l", "d/.below"]
BIG = 400 << 20  # never read whole


class Chirp:
    """Files below ``root``, for everybody on this machine."""

    def __init__(self, place: Path) -> None:
        port = free_port()
        self.root = place / "data"
        self.root.mkdir()
        acl = place / "acl"
        acl.write_text("hostname:localhost rwlda\naddress:127.0.0.1 rwlda\nunix:* rwlda\n")
        # Without -u it tells a host on the Internet about itself. It does not run as root.
        command = ["chirp_server", "-r", str(self.root), "-p", str(port), "-I", "127.0.0.1", "-u", "127.0.0.1", "-A", str(acl)]
        command += ["-y", str(place), "-a", "unix", "-a", "hostname", "-a", "address"]
        if os.getuid() == 0:
            shutil.chown(self.root, "nobody")
            command += ["-i", "nobody"]
        self.server = Server(command, port)
        self.url = f"chirp://127.0.0.1:{port}"

    def put(self, files: dict[str, bytes]) -> None:
        for name, content in files.items():
            place = self.root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            place.chmod(0o644)
        if os.getuid() == 0:
            subprocess.run(["chown", "-R", "nobody", str(self.root)], check=True)

    def left(self) -> list[str]:
        """Names of files that were never whole."""
        return [str(path) for path in self.root.rglob(".amfs-*")]


@pytest.fixture(scope="module")
def server() -> Iterator[Chirp]:
    place = Path(tempfile.mkdtemp(prefix="amfs-chirp-", dir="/tmp"))  # the server's user must get there
    place.chmod(0o755)
    server = Chirp(place)
    yield server
    server.server.kill()
    shutil.rmtree(place)


session = pytest.fixture(scope="module", name="session")(two_nodes)
files = pytest.fixture(name="files")(files_of_session)


@pytest.fixture
def system(server: Chirp) -> chirp.ChirpFileSystem:
    return chirp.ChirpFileSystem("127.0.0.1", server.server.port)


def test_names_and_contents_come_and_go_back(server: Chirp, files: Files) -> None:
    content = {name: name.encode() * 3 for name in NAMES} | {"empty": b"", "large": os.urandom(3 << 20)}
    server.put({f"in/{name}": data for name, data in content.items()})
    fine("load", f"{server.url}/in", "amfs:/names")
    assert {name: files.read_bytes(f"/names/{name}") for name in content} == content
    fine("dump", "amfs:/names", f"{server.url}/out/")
    assert {name: (server.root / "out" / name).read_bytes() for name in content} == content
    files.write_bytes("/names/-l", b"other")
    assert "1 file, 5 B" in amfs("dump", "-v", "amfs:/names", f"{server.url}/out/").stderr
    assert (server.root / "out/-l").read_bytes() == b"other" and server.left() == []
    assert amfs("diff", "amfs:/names", f"{server.url}/in").returncode == 1


def test_ls_cat_put_and_get_take_its_urls(server: Chirp, files: Files) -> None:
    server.put({"faces/one": b"1", "faces/t wo": b"22"})
    at = f"{server.url}/faces"
    assert [line.split(None, 1)[0] + line[-6:] for line in fine("ls", "-l", at).splitlines()] == ["1es/one", "2s/t wo"]
    assert "faces/one" in [one.name for one in Storages(Settings()).matching(f"{server.url}/")], "the root itself"
    assert fine("cat", f"{at}/t wo", f"{at}/one") == "221"
    fine("put", f"{at}/t wo", "amfs:/two")
    assert files.read_bytes("/two") == b"22"
    fine("get", "amfs:/two", f"{at}/new/three")
    assert (server.root / "faces/new/three").read_bytes() == b"22"


def test_a_run_has_inputs_and_outputs_there(server: Chirp, tmp_path: Path) -> None:
    server.put({"raw/a": b"a\n", "raw/b c": b"b\n"})
    at = server.url
    inputs, output = [f"{at}/raw/a", f"{at}/raw/b c"], f"{at}/made/the both"
    argv = ["sh", "-c", 'cat "$1" "$2" >"$3"', "sh", *inputs, output]
    task = {"type": "task", "id": "0", "argv": argv, "inputs": inputs, "outputs": [output]}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    command = [sys.executable, "-m", "amfs", "run", "-q", "--local", "tasks.jsonl"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert (server.root / "made/the both").read_bytes() == b"a\nb\n"


def test_a_fault_is_one_line(server: Chirp, files: Files, tmp_path: Path) -> None:
    server.put({"closed/file": b"x", "names/ü": b"u", "names/u": b"u"})
    (server.root / "closed/.__acl").write_text("hostname:elsewhere rwlda\n")
    refused(2, f"{server.url}/none: no such object", "ls", f"{server.url}/none")
    refused(1, f"{server.url}/names/ü: failed: Chirp has no names with", "load", f"{server.url}/names", "amfs:/ascii")
    assert files.read_bytes("/ascii/u") == b"u", "the others come"
    refused(2, "cannot be reached", "load", f"chirp://127.0.0.1:{free_port()}/x", "amfs:/x")
    refused(5, chirp.NEEDED, "ls", f"{server.url}/none", PATH=str(tmp_path))
    storages = Storages(Settings())
    place = storages.place(f"{server.url}/closed/file")
    for act in (place.remote.stat, place.remote.delete, lambda key: place.remote.write(key, [b"new"])):
        with pytest.raises(RemoteError) as caught:
            act(place.key)
        assert caught.value.kind is Kind.DENIED
    with pytest.raises(UsageError, match="Port could not be cast"):
        storages.place("chirp://127.0.0.1:port/x")


def test_links_are_listed_and_not_followed(server: Chirp, system: chirp.ChirpFileSystem) -> None:
    server.put({"links/file": b"file"})
    for name, target in {"up": "..", "dangling": "none", "same": "file"}.items():
        (server.root / "links" / name).symlink_to(target)
    assert system.find("/links") == ["/links/dangling", "/links/file", "/links/same", "/links/up"]
    assert system.cat_file("/links/same") == b"file"
    for name, error in {"up": IsADirectoryError, "dangling": FileNotFoundError}.items():
        with pytest.raises(error):
            system.cat_file(f"/links/{name}")


def test_the_file_system_changes_what_it_is_told_to(server: Chirp, system: chirp.ChirpFileSystem) -> None:
    system.pipe_file("/tree/of/file", b"old")
    system.mv("/tree/of/file", "/tree/moved")
    assert system.ls("/tree", detail=False) in (["/tree/of", "/tree/moved"], ["/tree/moved", "/tree/of"])
    with pytest.raises(IsADirectoryError):  # the tool would remove all of it
        system.rm_file("/tree")
    system.rmdir("/tree/of")
    system.rm("/tree", recursive=True)
    assert not system.exists("/tree") and not (server.root / "tree").exists()


def test_a_directory_may_get_its_rights_after_it_was_made(server: Chirp, system: chirp.ChirpFileSystem, tmp_path: Path) -> None:
    """The server makes it with an empty list of rights: somebody else's file may come before they are written."""
    (tmp_path / "new").write_bytes(b"new")
    system.mkdir("/young")
    rights = server.root / "young/.__acl"
    given = rights.read_bytes()
    for name in ("file", "below/file"):
        os.truncate(rights, 0)
        with pytest.raises(PermissionError):
            system.put_file(str(tmp_path / "new"), f"/young/{name}")
        with ThreadPoolExecutor(1) as pool:
            put = pool.submit(system.put_file, str(tmp_path / "new"), f"/young/{name}")
            time.sleep(0.3)
            rights.write_bytes(given)
            put.result()
        assert system.cat_file(f"/young/{name}") == b"new"


def test_a_change_while_it_is_read_is_noticed(server: Chirp) -> None:
    server.put({"changing": b"before"})
    storages = Storages(Settings())
    place = storages.place(f"{server.url}/changing")
    found = place.remote.stat(place.key)
    pieces = place.remote.read(found)
    assert next(pieces) == b"before"
    server.put({"changing": b"after that"})
    with pytest.raises(RemoteError) as caught:
        next(pieces)
    assert caught.value.kind is Kind.CHANGED


def test_a_server_that_dies_leaves_the_old_file_and_is_noticed(server: Chirp, system: chirp.ChirpFileSystem, tmp_path: Path) -> None:
    server.put({"dying/target": b"old", "dying/source": b""})
    for path in (server.root / "dying/source", tmp_path / "big"):
        path.touch()
        os.truncate(path, BIG)
    file = system.open("/dying/source")
    assert file.read(10) == bytes(10)
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(system.put_file, str(tmp_path / "big"), "/dying/target")
        until(server.left)
        server.server.kill()
        with pytest.raises(ConnectionError):
            put.result()
    with pytest.raises(ConnectionError), file:
        while file.read(1 << 20):
            pass
    server.server.start()
    assert (server.root / "dying/target").read_bytes() == b"old"
    system.pipe_file("/dying/target", b"new")
    assert system.cat_file("/dying/target") == b"new"
