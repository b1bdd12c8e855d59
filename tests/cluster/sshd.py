"""Real sshds on hosts of namespaces, to which one key gives access; the keys and the configuration are in a directory that all hosts share.

The home has them, too: ``ssh`` on any of the hosts finds them there by itself. Must not know amfs.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from waiting import until

from cluster.hosts import Host, Hosts, why_not

PROGRAMS = ("ssh", "ssh-keygen", "sshd")
PORT = 22

SERVER = """\
HostKey {place}/host
AuthorizedKeysFile {place}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
PrintMotd no
"""

CLIENT = """\
IdentityFile {place}/user
UserKnownHostsFile {place}/known
GlobalKnownHostsFile none
"""


def why_no_sshd() -> str:
    """Why there can be no sshd here; "": there can."""
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    return why_not() or (f"OpenSSH's {', '.join(missing)} are not installed" if missing else "")


class Sshd:
    """An sshd on each of ``hosts.nodes``; all have one host key. ``client``: the configuration of ssh, as its option -F takes it."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.place = hosts.shared / "ssh"
        self.place.mkdir(mode=0o700)
        for name in ("host", "user"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(self.place / name)]
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
        key = " ".join((self.place / "host.pub").read_text().split()[:2])
        (self.place / "known").write_text("".join(f"{host.name},{host.address} {key}\n" for host in hosts.nodes))
        (self.place / "sshd_config").write_text(SERVER.format(place=self.place))
        self.client = self.place / "config"
        self.client.write_text(CLIENT.format(place=self.place))
        self._daemons: list[subprocess.Popen[bytes]] = []
        for host in hosts.nodes:
            host.run("mkdir", "-p", "/run/sshd")
            words = [shutil.which("sshd", path="/usr/sbin") or "sshd", "-D", "-e", "-f", str(self.place / "sshd_config"), f"-p{PORT}"]
            self._daemons.append(host.start(*words, log=self.place / f"{host.name}.log"))
        for host in hosts.nodes:
            until(lambda host=host: "listening" in (self.place / f"{host.name}.log").read_text().lower(), f"sshd on {host.name}")  # type: ignore[misc]

    def connections(self, host: Host) -> list[int]:
        """The processes of sshd that serve somebody there, by their numbers here."""
        return [pid for pid in host.processes("sshd:") if b"[listener]" not in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def stop(self) -> None:
        for host in self.hosts.nodes:
            for pid in host.processes("sshd"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for daemon in self._daemons:
            daemon.wait(timeout=30)
        shutil.rmtree(self.place)


@contextmanager
def sshd(hosts: Hosts) -> Iterator[Sshd]:
    """Raises OSError where there can be none."""
    if reason := why_no_sshd():
        raise OSError(reason)
    made = Sshd(hosts)
    try:
        yield made
    finally:
        made.stop()
