"""A small real Slurm on hosts of namespaces: a controller on the login host, a slurmd on each node; no systemd.

Owns its configuration and daemons, in a directory that all hosts share. Must not know amfs.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from waiting import until

from cluster.hosts import Host, Hosts, why_not

PROGRAMS = ("munged", "sbatch", "slurmctld", "slurmd")
FREEZER = Path("/sys/fs/cgroup/freezer")
_PORT = 6817

#: Nodes may say that they have more than the machine has. Jobs start at once. A job that was told to end has 5 s
#: before it is killed; one of the partition main that has to make room for one of the partition urgent, 10 s.
CONFIGURATION = """\
ClusterName=here
SlurmctldHost=login({login})
SlurmctldPort={port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd-%n.log
ProctrackType=proctrack/{containment}
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU={memory_per_cpu}
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MinJobAge=60
SlurmdTimeout=10
SlurmctldTimeout=10
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE GraceTime=10 State=UP
PartitionName=short Nodes=ALL MaxTime=1 State=UP
PartitionName=urgent Nodes=ALL PriorityTier=9 PreemptMode=OFF State=UP
"""


def why_no_slurm() -> str:
    """Why there can be no Slurm here; "": there can."""
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    return why_not() or (f"Slurm's {', '.join(missing)} are not installed" if missing else "")


class Slurm:
    """A Slurm of ``hosts.nodes``. With cgroups (v1) all that a step started ends with it, as on most clusters; else daemons live on."""

    def __init__(self, hosts: Hosts, cpus: int = 2, memory_mib: int = 2000) -> None:
        self.hosts = hosts
        self.place = hosts.shared / "slurm"
        self.place.mkdir()
        (self.place / "state").mkdir()
        self.contained = FREEZER.is_dir()
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.controller: subprocess.Popen[bytes] | None = None
        self.env = {"SLURM_CONF": str(self.place / "slurm.conf")}
        nodes = "\n".join(
            f"NodeName={host.name} NodeAddr={host.address} CPUs={cpus} RealMemory={memory_mib} State=UNKNOWN" for host in hosts.nodes
        )
        text = CONFIGURATION.format(
            login=hosts.login.address, port=_PORT, node_port=_PORT + 1, place=self.place, nodes=nodes,
            containment="cgroup" if self.contained else "linuxproc", memory_per_cpu=memory_mib // cpus,
        )
        (self.place / "slurm.conf").write_text(text)
        (self.place / "cgroup.conf").write_text("CgroupAutomount=no\n")

    def start(self) -> None:
        """Start all daemons, and wait until all nodes are idle."""
        key, socket = self.place / "munge.key", self.place / "munge.socket"
        key.write_bytes(secrets.token_bytes(64))
        key.chmod(0o600)
        files = [f"--{what}-file={self.place}/munge.{what}" for what in ("pid", "log", "seed")]
        login = self.hosts.login
        self._daemon(login, "munged", "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket}", *files)
        until(socket.exists, "munged did not start")
        self.start_controller()
        for host in self.hosts.nodes:
            self.start_node(host)
        self.wait_until_idle()

    def start_node(self, host: Host) -> None:
        self._daemon(host, f"slurmd-{host.name}", "slurmd", "-D", "-N", host.name)

    def wait_until_idle(self) -> None:
        idle = ("sinfo", "-h", "-N", "-t", "idle", "-p", "main")
        until(lambda: len(self.on_login(*idle, check=False).splitlines()) == len(self.hosts.nodes), f"nodes not idle: {self.place}")

    def start_controller(self) -> None:
        self.controller = self._daemon(self.hosts.login, "slurmctld", "slurmctld", "-D", "-i")

    def stop_controller(self) -> None:
        """The controller is away, as when it is restarted; jobs go on."""
        for pid in self.hosts.login.processes("slurmctld"):
            os.kill(pid, 15)
        if self.controller is not None:
            self.controller.wait(timeout=30)

    def on_login(self, *argv: str, check: bool = True, input: str | None = None, timeout: float = 90) -> str:
        """The output of a command on the login host."""
        return self.hosts.login.run(*argv, env=self.env, check=check, input=input, timeout=timeout).stdout

    def queue(self) -> list[str]:
        """A line for each job that waits or runs: number, state, reason, nodes. None while the controller is away."""
        return self.on_login("squeue", "-h", "--format=%i|%T|%r|%N", check=False).splitlines()

    def _daemon(self, host: Host, name: str, *argv: str) -> subprocess.Popen[bytes]:
        started = host.start(*argv, log=self.place / f"{name}.out.log", env=self.env)
        self._daemons.append(started)
        return started

    def stop(self) -> None:
        """End all jobs and daemons."""
        self.on_login("scancel", "--full", "--user=root", check=False, timeout=20)
        with_jobs = [host for host in self.hosts.nodes if host.processes("slurmstepd")]
        until(lambda: not any(host.processes("slurmstepd") for host in with_jobs), "jobs did not end")
        for host in self.hosts.all:
            host.crash()
        for daemon in self._daemons:
            daemon.wait(timeout=30)
        for host in self.hosts.nodes if self.contained else ():  # slurmd leaves its empty groups
            group = FREEZER / f"slurm_{host.name}"
            for folder, _, _ in os.walk(group, topdown=False):
                until(partial(_removed, folder), f"{folder} is in use")


def _removed(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


@contextmanager
def slurm(hosts: Hosts) -> Iterator[Slurm]:
    """Raises OSError where there can be none."""
    if reason := why_no_slurm():
        raise OSError(reason)
    made = Slurm(hosts)
    try:
        made.start()
        yield made
    finally:
        made.stop()
