"""The data connections of a session: one port a node, closed to whoever has not the key."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import commands
import pytest
from fs_session import PATIENCE_S, running

from amfs._native import read_stored
from amfs.net.records import SessionRecord


def listening(pid: int) -> list[int]:
    """The TCP ports on which a process listens."""
    mine = set()
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            mine.add(os.readlink(f"/proc/{pid}/fd/{entry}"))
        except FileNotFoundError:
            continue
    ports = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
                ports.append(int(fields[1].rpartition(":")[2], 16))
    return ports


def amfs(session: SessionRecord, place: Path) -> subprocess.CompletedProcess[str]:
    return commands.run("run", "--no-journal", "--session", session.name, "list", cwd=place, timeout=PATIENCE_S)


def test_large_files_and_the_file_system_share_one_port(tmp_path: Path) -> None:
    """Ten files of 300 kB, each made on one node and read on another."""
    lines = []
    for i in range(10):
        lines.append(f"make{i} -b sh -o f{i} -node {i % 2} -a -c 'head -c 300000 /dev/zero > f{i}'")
        lines.append(f"count{i} -b wc -i f{i} -stdout n{i} -node {1 - i % 2} -a -c f{i}")
    (tmp_path / "list").write_text("\n".join(lines) + "\n")
    with running(2) as session:
        ports = [listening(node.pid) for node in session.nodes]
        assert [len(each) for each in ports] == [1, 1], "data, and nothing else, is on TCP"
        done = amfs(session, tmp_path)
        assert done.returncode == 0, done.stderr
        assert [(tmp_path / f"n{i}").read_text() for i in range(10)] == [f"300000 f{i}\n" for i in range(10)]
        assert [listening(node.pid) for node in session.nodes] == ports


def test_the_port_is_closed_to_strangers_and_the_key_opens_it(tmp_path: Path) -> None:
    with running(1) as session:
        (node,) = session.nodes
        (port,) = listening(node.pid)
        store = next(Path("/dev/shm").glob(f"amfs-{os.getuid()}-{session.name}-n0-*"))
        files = next(path for path in store.rglob("files") if path.is_dir())
        (files / "secret").write_bytes(b"secret")
        for junk in (b"", b"GET / HTTP/1.1\r\n\r\n", bytes(72), b"AMFD\x02\0\0\0" + bytes(64) + bytes(32) + bytes(48)):
            with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as stranger:
                heard = b""
                try:
                    stranger.sendall(junk)
                    stranger.shutdown(socket.SHUT_WR)
                    while more := stranger.recv(4096):
                        heard += more
                except TimeoutError:
                    raise
                except OSError:  # it was cut off before it had said all
                    pass
            assert b"secret" not in heard
        with pytest.raises(PermissionError):
            read_stored(bytes(32), 1 << 40, 0, 0, "127.0.0.1", port, "secret", 6)
        assert read_stored(session.keys.data, 1 << 40, 0, 0, "127.0.0.1", port, "secret", 6) == b"secret"
