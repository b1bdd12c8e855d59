"""Hosts on this machine: each has a name, an address, process numbers, /tmp, /dev/shm and /run of its own, as hosts of a cluster have.

Owns the namespaces. A host lives as long as one process does, its first; when that is killed, everything on the host is gone, as when the
power fails. Needs root. Must not know amfs.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAMS = ("ip", "mount", "nsenter", "unshare")
NETWORK = "10.77.0"
LOGIN = 254

#: The first process of a host: $1 name, $2 file of host names, $3… what all hosts share. It makes the host, says so, and reaps orphans.
INIT = r"""
set -e
name=$1 names=$2; shift 2
hostname "$name"
mkdir -p /mnt; mount -t tmpfs none /mnt
at=0; for path in "$@"; do at=$((at + 1)); mkdir /mnt/$at; mount --rbind "$path" /mnt/$at; done
mount --bind "$names" /etc/hosts
mount -t tmpfs -o mode=1777 none /tmp; mount -t tmpfs -o mode=755 none /run; mount -t tmpfs -o mode=1777,size=1g none /dev/shm
at=0; for path in "$@"; do at=$((at + 1)); mkdir -p "$path"; mount --rbind /mnt/$at "$path"; done
umount -l /mnt; cd /
ip link set lo up
echo ready
exec python3 -c 'import os, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
while True:
    try: os.wait()
    except ChildProcessError: signal.sigtimedwait([signal.SIGCHLD], 0.2)'
"""


def why_not() -> str:
    """Why this machine allows no such hosts; "": it does."""
    if os.geteuid() != 0:
        return "hosts of namespaces need root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"hosts of namespaces need {', '.join(missing)}" if missing else ""


class Host:
    """One host. ``pid``: of its first process, seen from here. ``shared``: a directory that all hosts have."""

    def __init__(self, name: str, address: str, home: Path, shared: Iterable[Path]) -> None:
        self.name, self.address, self.home = name, address, home
        spaces = ("--mount", "--uts", "--net", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")
        words = ["unshare", *spaces, "sh", "-c", INIT, "init", name, str(home / "hosts"), *map(str, shared)]
        self._unshare = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
        assert self._unshare.stdout is not None
        if self._unshare.stdout.readline() != b"ready\n":
            raise OSError(f"host {name} was not made")
        self._unshare.stdout.close()
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children").read_text().split()
        self.pid = int(children[0])

    def command(self, argv: Iterable[str], cwd: Path | str = "/") -> list[str]:
        """``argv`` as it is to be started from here in order to run there."""
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--uts", "--net", "--ipc", "--pid"]
        return [*enter, "sh", "-c", 'cd "$0" && exec "$@"', str(cwd), *argv]

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of somebody who is logged in there: a home that all hosts share, nothing of amfs."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("AMFS_", "XDG_", "PMI", "SLURM_", "OMPI_", "TMP"))}
        path = f"{Path(sys.executable).parent}:{kept.get('PATH', '')}:/usr/sbin"
        return {**kept, "HOME": str(self.home), "PATH": path, **(more or {})}

    def run(
        self,
        *argv: str,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        check: bool = True,
        timeout: float = 90,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there and wait for it. Raises AssertionError with all that it said if ``check`` and it fails."""
        given = {"input": input} if input is not None else {"stdin": subprocess.DEVNULL}
        words = self.command(argv, cwd or self.home)
        done = subprocess.run(words, env=self.environment(env), capture_output=True, text=True, timeout=timeout, check=False, **given)  # type: ignore[call-overload]
        if check and done.returncode:
            raise AssertionError(f"{self.name}: {shlex.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def start(self, *argv: str, log: Path, cwd: Path | str | None = None, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a command there; its output goes to ``log``."""
        with open(log, "ab") as out:
            words = self.command(argv, cwd or self.home)
            return subprocess.Popen(
                words, env=self.environment(env), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def processes(self, word: str) -> list[int]:
        """Processes of this host, by their numbers here, whose command line has ``word`` in it."""
        inside = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "ns/pid") == inside and word.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue  # it has ended
        return found

    def listing(self, directory: str) -> list[str]:
        """The names in a directory there; none if it is not there."""
        try:
            return sorted(os.listdir(f"/proc/{self.pid}/root{directory}"))
        except FileNotFoundError:
            return []

    def crash(self) -> None:
        """End everything that runs there, at once and without a word."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._unshare.kill()
        self._unshare.wait()


class Hosts:
    """``n1`` … (after ``mark``) and ``login``, on one network. All see ``shared`` under one path, and the home in it."""

    def __init__(self, count: int, shared: Path, mark: str = "") -> None:
        self.shared = shared
        home = shared / "home"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = [(f"{mark}n{number}", f"{NETWORK}.{number}") for number in range(1, count + 1)] + [("login", f"{NETWORK}.{LOGIN}")]
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in names)]
        (home / "hosts").write_text("\n".join(lines) + "\n")
        seen = [shared, Path(__file__).resolve().parents[2], Path(sys.prefix)]  # the tree and the environment may be below /tmp
        if sys.pycache_prefix is not None:  # a host that did not see it would compile all that it imports
            Path(sys.pycache_prefix).mkdir(parents=True, exist_ok=True)
            seen.append(Path(sys.pycache_prefix).resolve())
        seen = [path for path in dict.fromkeys(seen) if not any(other != path and path.is_relative_to(other) for other in seen)]
        self._seen = seen
        self.nodes: list[Host] = []
        self.login = Host(*names[-1], home, seen)
        self.all = [self.login]
        try:
            self._on_login("link", "add", "bridge", "type", "bridge")
            self._on_login("addr", "add", f"{self.login.address}/24", "dev", "bridge")
            self._on_login("link", "set", "bridge", "up")
            self._on_login("route", "add", "default", "dev", "bridge")  # programs that look for "the" address find this one
            for name, address in names[:-1]:
                self.nodes.append(self._connected(Host(name, address, home, seen)))
                self.all.append(self.nodes[-1])
        except BaseException:
            self.remove()
            raise

    def _on_login(self, *words: str) -> None:
        self.login.run("ip", *words)

    def _connected(self, host: Host) -> Host:
        port = f"to-{host.name}"
        self._on_login("link", "add", port, "type", "veth", "peer", "name", "eth0")
        subprocess.run(
            ["nsenter", f"--target={self.login.pid}", "--net", "ip", "link", "set", "eth0", "netns", str(host.pid)], check=True
        )
        self._on_login("link", "set", port, "master", "bridge")
        self._on_login("link", "set", port, "up")
        host.run("ip", "addr", "add", f"{host.address}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
        host.run("ip", "route", "add", "default", "via", self.login.address)
        return host

    def cut(self, host: Host) -> None:
        """Take a host off the network."""
        self._on_login("link", "set", f"to-{host.name}", "down")

    def mend(self, host: Host) -> None:
        self._on_login("link", "set", f"to-{host.name}", "up")

    def revive(self, crashed: Host) -> Host:
        """The host after its crash, in the place of the one that crashed: nothing runs there, and nothing is in its memory."""
        self.login.run("ip", "link", "del", f"to-{crashed.name}", check=False)  # it goes with the crash, but not at once
        revived = self._connected(Host(crashed.name, crashed.address, crashed.home, self._seen))
        self.nodes[self.nodes.index(crashed)] = self.all[self.all.index(crashed)] = revived
        return revived

    def remove(self) -> None:
        for host in reversed(self.all):
            host.crash()


@contextmanager
def hosts(count: int, shared: Path, mark: str = "") -> Iterator[Hosts]:
    """Raises OSError where they cannot be made."""
    if reason := why_not():
        raise OSError(reason)
    made = Hosts(count, shared, mark)
    try:
        yield made
    finally:
        made.remove()

