"""All nodes of the batch job around this process: one node a host, each a task of the batch system, in its foreground.

So a node ends with its job, hears when the job is told to end, and is no process that the system does not know. Keys go to the nodes by
standard input. Owns the order of the steps, and the cleaning up when one of them fails. Every wait is bounded. Must not know: the commands
of any batch system (``systems``).
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import import_module

import msgspec

from amfs.client import discovery
from amfs.client.control import Client
from amfs.errors import SessionError, UsageError
from amfs.host import orphans, processes
from amfs.host.signals import postponed
from amfs.net import records
from amfs.net.records import NodeEntry, Ready, SessionRecord
from amfs.net.sockets import make_keys
from amfs.provision import daemon
from amfs.provision.local import START_PER_NODE_S, START_S, LocalProcesses, node_config
from amfs.provision.provisioner import NodeOptions
from amfs.provision.systems import System
from amfs.vocabulary.messages import Shutdown, View

_LOG = "launch.log"  # in the session's directory here: output of the launcher and the nodes
_ASK_S = 30.0  # for the system to say which hosts there are


class Founding(msgspec.Struct, frozen=True):
    """The message to the first node of a session, on its standard input. ``nodes`` of the record are none yet."""

    session: SessionRecord
    options: NodeOptions


class Allocation:
    """``nodes`` hosts of a job, or all of them. ``start`` is called in the job's script, or by hand where the job is at hand."""

    def __init__(self, system: System, nodes: int | None = None) -> None:
        self.system, self.nodes, self.speaks = system, nodes, True

    def start(self, name: str | None, options: NodeOptions) -> SessionRecord:
        """Raises UsageError if the job has fewer hosts, or runs this command several times; SessionError if nodes do not start."""
        if (copies := self.system.copies(os.environ)) > 1:
            raise UsageError(
                f"{self.system.name} runs this command {copies} times, and ends all that it starts with it: "
                "type 'amfs up' once in the job, without a launcher; it takes all nodes of the job"
            )
        hosts = self._hosts()
        options = msgspec.structs.replace(options, tcp=options.tcp or "0.0.0.0", expected=max(options.expected, len(hosts)))
        orphans.sweep()
        claim = discovery.claim(name)
        chosen, directory = claim.name, claim.path
        started: list[subprocess.Popen[bytes]] = []
        founded: SessionRecord | None = None
        patience = START_S + START_PER_NODE_S * len(hosts)
        try:
            bare = SessionRecord(
                name=chosen, keys=make_keys(), created=time.time(), host=processes.host_id(), unit_size=options.unit_size
            )
            log = os.path.join(directory, _LOG)
            payload = msgspec.json.encode(Founding(bare, options))
            started.append(self._launch(hosts[:1], ["--found"], payload, log, answers=True))
            first = _await_line(started[0], log, patience)
            there = tuple(endpoint for endpoint in first.endpoints if not endpoint.startswith("ipc://"))
            founded = msgspec.structs.replace(bare, nodes=(NodeEntry(0, there, "", first.pid, first.started),))
            if hosts[1:]:
                words = ["--join", "/dev/stdin", *as_words(options)]
                started.append(self._launch(hosts[1:], words, msgspec.json.encode(founded), log))
            view = _await_members(founded, len(hosts), started, log, patience)
            pids = {0: (first.pid, first.started)}
            nodes = [NodeEntry(one.node, one.endpoints, one.host, *pids.get(one.node, (0, 0))) for one in view.members]
            session = msgspec.structs.replace(founded, nodes=tuple(nodes))
            records.save(session)
        except BaseException:
            with postponed():  # a second Ctrl-C would leave nodes on the hosts
                if founded is not None:
                    with contextlib.suppress(SessionError), Client(founded) as client:
                        client.tell([0], Shutdown(), 2.0)
                for process in started:
                    process.terminate()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(10)
                records.remove_directory(directory)
            raise
        finally:
            claim.release()
        return session

    def add(self, session: SessionRecord, options: NodeOptions) -> Ready:
        raise UsageError(f"'amfs node --join' on a host of the job adds a node; {self.system.name} is not asked for more hosts")

    def end(self, session: SessionRecord, timeout_s: float) -> list[str]:
        """The launchers end with their nodes."""
        return LocalProcesses().end(session, timeout_s)

    def _hosts(self) -> list[str]:
        words = list(self.system.hosts)
        try:
            said = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_ASK_S, check=False)
        except OSError as error:
            raise SessionError(f"cannot run {words[0]}: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise SessionError(f"'{' '.join(words)}' does not say within {_ASK_S:.0f} s which hosts the job has") from None
        hosts = said.stdout.split()
        if said.returncode or not hosts:
            words_of_it = (said.stderr.strip().splitlines() or ["it names no host"])[-1]
            raise SessionError(f"'{' '.join(words)}' does not say which hosts the job has: {words_of_it}")
        if self.nodes is not None and self.nodes > len(hosts):
            raise UsageError(f"--nodes {self.nodes}: this job has {len(hosts)} of them; --on local starts nodes on this host alone")
        return hosts[: self.nodes]

    def _launch(
        self, hosts: Sequence[str], words: Sequence[str], payload: bytes, log: str, answers: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start ``amfs node`` on these hosts, with ``payload`` as everybody's standard input. Raises SessionError."""
        command = [*self.system.launcher(hosts), sys.executable, "-P", "-m", "amfs", "node", *words]
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE if answers else out, stderr=out, start_new_session=True,
                cwd="/", env=daemon.node_environment(),
            )  # fmt: skip
        except OSError as error:
            raise SessionError(f"cannot run {command[0]}: {error.strerror}") from None
        finally:
            os.close(out)
        with open(os.path.join(os.path.dirname(log), records.LAUNCHERS), "a", encoding="ascii") as known:
            known.write(f"{processes.host_id()} {process.pid} {processes.start_time(process.pid)}\n")
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended at once; the wait for it sees that
            process.stdin.write(payload)
            process.stdin.close()
        return process


def as_words(options: NodeOptions) -> list[str]:
    """The options of a node as ``amfs node`` takes them."""
    slots = "none" if options.slots == records.NO_SLOTS else options.slots
    values = {
        "--slots": slots, "--memory": options.memory, "--tcp": options.tcp, "--store": options.store_dir,
        "--store-limit": options.store_limit, "--high-water": options.high_water, "--spill": options.spill,
        "--spill-limit": options.spill_limit, "--drain-time": f"{options.drain_s:g}",
    }  # fmt: skip
    return [word for flag, value in values.items() if value for word in (flag, str(value))]


def _await_line(process: subprocess.Popen[bytes], log: str, patience_s: float) -> Ready:
    """The line in which the first node says that it listens. Raises SessionError, with the end of the log."""
    assert process.stdout is not None
    heard, end = b"", time.monotonic() + patience_s
    with process.stdout as stream:
        while not heard.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                raise SessionError(f"the first node did not start within {patience_s:.0f} s{daemon.tail(log)}")
            data = os.read(stream.fileno(), 65536)
            if not data:
                raise SessionError(f"the first node did not start{daemon.tail(log)}")
            heard += data
    try:
        first = msgspec.json.decode(heard, type=Ready)
    except msgspec.MsgspecError:
        raise SessionError(f"the first node said something else than where it listens{daemon.tail(log)}") from None
    if first.error:
        raise SessionError(f"the first node did not start: {first.error}")
    return first


def _await_members(session: SessionRecord, count: int, started: Sequence[subprocess.Popen[bytes]], log: str, patience_s: float) -> View:
    """The view when all are members. Raises SessionError when that takes too long, or a launcher has ended."""
    end = time.monotonic() + patience_s
    with Client(session) as client:
        while True:
            try:
                return client.view(1.0, until=lambda view: len(view.members) >= count)
            except SessionError as error:
                if any(process.poll() is not None for process in started) or time.monotonic() >= end:
                    raise SessionError(f"{error}{daemon.tail(log)}") from None


def found_here() -> int:
    """Be the first node of a session, in this process, as standard input says (``amfs node --found``); returns the exit status.

    One line on standard output says where it listens; all else goes to standard error. Raises UsageError.
    """
    try:
        founding = msgspec.json.decode(sys.stdin.buffer.read(), type=Founding)
    except msgspec.MsgspecError:
        raise UsageError("--found is for 'amfs up', which says on standard input what to found") from None
    session = founding.session
    ready = os.dup(1)
    os.dup2(2, 1)
    directory = records.private_directory(session.directory)
    config = node_config(session.name, directory, session.keys, 0, founding.options)
    try:
        return daemon.run(import_module(daemon.NODE_MODULE).serve, config, ready)
    finally:
        records.remove_directory(directory)
