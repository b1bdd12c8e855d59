"""Every message that crosses a process, as typed structs. Pure vocabulary: imports parts of messages only.

A message is an immutable, array-encoded ``msgspec.Struct`` with a numeric tag. Many messages to one peer travel as a batch (``net.wire``).
All of them may be repeated without harm; the docstring of each says why. Names in messages are *keys*: the run's scope followed by the
file's name (``"7/temp0"``). Times are microseconds since the epoch of the machine that measured them unless said otherwise, sizes bytes.
"""

from __future__ import annotations

import re

import msgspec

from amfs.vocabulary.file_parts import FINAL as FINAL
from amfs.vocabulary.file_parts import KEEP as KEEP
from amfs.vocabulary.file_parts import Blob as Blob
from amfs.vocabulary.file_parts import FileAt as FileAt
from amfs.vocabulary.file_parts import Published as Published
from amfs.vocabulary.file_parts import RunFacts as RunFacts
from amfs.vocabulary.file_parts import retention as retention
from amfs.vocabulary.object_versions import ObjectVersion

PROTOCOL_VERSION = 18

#: Lower ids are nodes'. Clients (submitters, commands) draw a random one from here on.
CLIENT_ID_MIN = 1 << 32

ON_SHARED = -2  # in ``Lost``, in place of a node: the files were files of the session's file system


class Struct(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of the parts of messages."""


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of everything that travels by itself."""


# ── parts ──────────────────────────────────────────────────────────────────────────────────────────


class Options(Struct, frozen=True):
    """Options that few tasks need; absent (None) for the rest."""

    cores: int = 1
    memory: int = 0
    time_limit_ms: int = 0
    retries: int = 0
    priority: int = 0
    pin: int = -1  # node that must (hard) or should run it
    pin_hard: bool = True
    reduce: int = 0  # arity of the reduction tree; 0: an ordinary task
    unstaged: bool = False  # runs in the user's directory, without a sandbox
    depth: int = 0  # how many directories the sandbox needs above the working directory ("../x" names)
    paths: dict[str, str] = {}  # as RunInfo.paths, of a task that was not known when the run began
    blind: str = ""  # it declares no files: its working directory in the session's file system, absolute; "": an ordinary task
    lenient: bool = False  # of a blind task: it may end well without a file that its command line names, for nobody makes that file
    filled: tuple[str, ...] = ()  # inputs in which tasks of the run write: directories that may change while it runs
    name: str = ""  # the id of a task that makes files of the session's file system: their records keep it
    versions: dict[str, ObjectVersion] = {}  # of its inputs at URLs that are to be read as the run saw them, by name


class TaskSpec(Struct, frozen=True):
    """One task as it travels: ``body`` is the packed command (``vocabulary.records``), opaque on the way."""

    tid: int
    body: bytes
    inputs: tuple[str, ...] = ()  # keys that some task makes
    shared: tuple[str, ...] = ()  # keys that lie on shared storage
    outputs: tuple[str, ...] = ()
    retentions: tuple[int, ...] = ()  # one per output
    options: Options | None = None
    attempt: int = 0
    origin: int = 0  # the dispatcher that owns it (AME's tag)


AS_NODE = 20  # in place of a niceness, which is at most 19: that of the node


class RunInfo(Struct, frozen=True):
    """The part that the tasks of a run share; crosses the wire once per node."""

    scope: str  # prefix of every key of this run, "7/"
    base: str  # absolute directory in which the user stands
    env: tuple[str, ...]  # "K=V" of the submitter
    stage_shared: bool = False  # copy shared inputs into the store (once per node), else read in place
    hashed_outputs: int = 0  # number of hashed directories for final outputs; 0: off
    keep_sandbox: bool = False
    data_aware: bool = True
    capture_bytes: int = 65536  # of stdout and of stderr, per task, returned with the result
    want_output: bool = False  # send stdout and stderr of successful tasks back as well
    umask: int = 0o022
    nice: int = AS_NODE  # of the submitter
    limits: tuple[int, ...] = ()  # its soft limits by number; -1: none, -2: not known
    default_retries: int = 0
    paths: dict[str, str] = {}  # shared inputs that are not where their names say -> absolute paths; outputs that go to URLs -> those
    journal: str = ""  # mark of the journal that the run keeps, "": none. Of several runs with one journal only the last goes on
    life: int = 0  # the how-manieth run with this journal it is
    kept: str = ""  # path of the journal, for people
    storage: bytes = b""  # how storage at URLs is reached (``remote.settings``), keys included: for nodes only


class Result(Struct, frozen=True):
    """How one attempt at a task ended. ``outcome`` is ``vocabulary.states.Outcome``'s value; times in microseconds."""

    tid: int
    attempt: int = 0
    outcome: int = 0
    code: int = 0  # exit status or signal number
    node: int = 0
    slot: int = 0
    start_us: int = 0
    end_us: int = 0
    cpu_us: int = 0
    maxrss_kib: int = 0
    bytes_in: int = 0  # of the inputs that tasks made
    bytes_out: int = 0
    detail: str = ""  # the fault, in words for a person; nothing may be decided by them
    stdout: bytes = b""
    stderr: bytes = b""
    sizes: tuple[int, ...] = ()  # of the outputs
    bytes_fetched: int = 0  # of its inputs that came from other nodes on its account
    missing: tuple[str, ...] = ()  # a blind task that failed: paths in the session's file system that it looked for in vain
    made: tuple[str, ...] = ()  # a blind task that ended well: paths that have a file now
    suspects: tuple[int, ...] = ()  # INPUT_CHANGED: other tasks that had the file at that time
    whole: str = ""  # the file on its node with more of what it wrote to stdout than ``stdout`` has; "": there is none
    stdout_bytes: int = 0  # of all that, if there is more
    sandbox: str = ""  # where its sandbox was kept, on its node
    left: int = 0  # processes that it left running, which were ended
    times: tuple[int, ...] = ()  # of modification of the outputs, in ns


_THAT_FAILED = re.compile(r"task #(\d+) failed")


def failure_of(tid: int) -> str:
    """The cause of all that comes of the failure of a task."""
    return f"task #{tid} failed"


def task_that_failed(cause: str) -> int | None:
    """The inverse; None for another cause. A sentence of somebody else's is never looked into: there may be names of files in it."""
    found = _THAT_FAILED.fullmatch(cause)
    return int(found[1]) if found is not None else None


# ── submitter <-> nodes ────────────────────────────────────────────────────────────────────────────


class RunBegin(Message, frozen=True, tag=1):
    """Submitter -> every node. Ends an earlier run with the same journal. Repeatable: the same run, the same answer."""

    run: int
    client: int
    info: RunInfo
    epoch: int = 0  # of a view of the submitter's: from the beginning of the run until that no node was lost
    since: int = 0  # the epoch of its view when the run began


class RunReady(Message, frozen=True, tag=2):
    """Node -> submitter: the node knows the run, and no earlier one with its journal goes on here."""

    run: int
    node: int


class Submit(Message, frozen=True, tag=3):
    """Submitter -> dispatcher: tasks to own. Repeatable: keyed by tid."""

    run: int
    tasks: tuple[TaskSpec, ...]


class Results(Message, frozen=True, tag=5):
    """Dispatcher -> submitter: tasks that ended for good. Gives back one credit each, and lends one per parked task."""

    run: int
    results: tuple[Result, ...]
    parked: int = 0  # tasks of this dispatcher that wait for input


class Poison(Message, frozen=True, tag=6):
    """Anyone -> FLS shard: these files will never be made; ``cause`` is shown to people. First cause wins."""

    run: int
    names: tuple[str, ...]
    cause: str


class FinalizeFiles(Message, frozen=True, tag=7):
    """Submitter -> FLS shard: an open list was closed. ``finals`` go to shared storage, ``drops`` may go."""

    run: int
    finals: tuple[str, ...]
    drops: tuple[str, ...]


class Flushed(Message, frozen=True, tag=8):
    """Worker -> submitter: these finals are on shared storage (LOCAL -> SHARED), or why not."""

    run: int
    files: tuple[tuple[str, int, str], ...]  # name, size, error ("" = fine)


class RunEnd(Message, frozen=True, tag=9):
    """Submitter, or the manager if that is dead -> every node: forget the run; kill what runs if ``kill``.

    Repeatable: forgetting twice is forgetting."""

    run: int
    kill: bool = False
    relay: bool = False  # pass it on to all nodes: the submitter cannot reach some


class RunGone(Message, frozen=True, tag=10):
    """Node -> submitter: nothing of the run is left here. Carries this node's traffic counters."""

    run: int
    node: int
    counters: dict[str, int]


class Spilled(Message, frozen=True, tag=11):
    """Node -> submitter, now and then: bytes of the run in this node's spill directory, and bytes that went there and came back."""

    run: int
    node: int
    on_disk: int
    spilled: int
    returned: int


# ── dispatcher <-> worker ──────────────────────────────────────────────────────────────────────────


class Assign(Message, frozen=True, tag=20):
    """Dispatcher -> worker, or worker -> worker when a task is forwarded or stolen. Repeatable: keyed by (tid, attempt)."""

    run: int
    tasks: tuple[TaskSpec, ...]
    moved: bool = False  # by a worker, which may be on the node of the dispatcher: the sender does not tell which of them it is


class Done(Message, frozen=True, tag=21):
    """Worker -> dispatcher: attempts that ended; and how many of the dispatcher's tasks wait for input here."""

    run: int
    results: tuple[Result, ...]
    parked: int = 0


class TaskMoved(Message, frozen=True, tag=22):
    """Worker -> dispatcher: these tasks of yours are with me now, or, when I gave them away, with ``by`` (stolen or forwarded).

    Both sides tell, for either may die before it does. Repeatable: the same place twice; the giver tells only of tasks still its own.
    """

    run: int
    tasks: tuple[tuple[int, int], ...]  # tid, attempt
    by: int = -1  # -1: the sender


class OutOfService(Message, frozen=True, tag=26):
    """Dispatcher -> worker and submitter: ``node`` failed tasks that ended well elsewhere, so it gets no more of the run."""

    run: int
    node: int


class StealAsk(Message, frozen=True, tag=23):
    """Idle worker -> worker: give me up to ``want`` tasks."""

    want: int


class StealNone(Message, frozen=True, tag=24):
    """Worker -> idle worker: nothing to give."""


class ReducePlan(Message, frozen=True, tag=25):
    """Worker -> dispatcher: the inputs of a reduction are all there; where each is."""

    run: int
    tid: int
    attempt: int
    files: tuple[FileAt, ...]


class PartLost(Message, frozen=True, tag=27):
    """Submitter -> dispatcher: the file of the partial task ``part`` of the reduction ``tid`` is nowhere."""

    run: int
    tid: int
    part: int


# ── worker <-> FLS ─────────────────────────────────────────────────────────────────────────────────


class Locate(Message, frozen=True, tag=30):
    """Worker -> FLS: where are these? Unanswered names are answered when they become VALID or FAILED."""

    run: int
    names: tuple[str, ...]


class Located(Message, frozen=True, tag=31):
    """FLS -> worker: these are VALID."""

    run: int
    files: tuple[FileAt, ...]


class FileFailed(Message, frozen=True, tag=32):
    """FLS -> worker: these will never be VALID."""

    run: int
    names: tuple[str, ...]
    causes: tuple[str, ...]


class Publish(Message, frozen=True, tag=33):
    """Worker -> FLS: INVALID -> VALID, held by the sender. First writer's size wins; a repeat adds a holder."""

    run: int
    files: tuple[Published, ...]


class Replica(Message, frozen=True, tag=34):
    """Worker -> FLS: the sender holds these as well."""

    run: int
    names: tuple[str, ...]


class Release(Message, frozen=True, tag=35):
    """Worker or dispatcher -> FLS: one reader of each of these has finished for good, or will never begin."""

    run: int
    names: tuple[str, ...]


class ReadAgain(Message, frozen=True, tag=39):
    """Submitter, or dispatcher of a reduction -> FLS: tasks that had ended run again and read these again: one more Release of each."""

    run: int
    names: tuple[str, ...]


class Drop(Message, frozen=True, tag=36):
    """FLS -> worker: delete your copies."""

    run: int
    names: tuple[str, ...]


class Flush(Message, frozen=True, tag=37):
    """FLS -> worker: copy these to shared storage and tell the submitter."""

    run: int
    names: tuple[str, ...]


class Lost(Message, frozen=True, tag=38):
    """Worker -> FLS: ``holder`` has these no longer (a fetch from it failed, or a task spoiled them); ON_SHARED: the session's file system
    has lost the content, which a task of this run had made. FLS -> submitter, holder -1: these are wanted and nobody has them; those of
    them that were made are to be made again; ON_SHARED: they were files of the session, and are to be that again. Repeatable: a file
    is lost once."""

    run: int
    names: tuple[str, ...]
    holder: int


class Fetch(Message, frozen=True, tag=40):
    """Worker -> holder: send me these."""

    run: int
    names: tuple[str, ...]


class Content(Message, frozen=True, tag=41):
    """Holder -> worker: here they are, or how large they are."""

    run: int
    blobs: tuple[Blob, ...]


class TakeFiles(Message, frozen=True, tag=42):
    """Worker of a node that is to leave -> worker: fetch these from me, since nobody else has them."""

    run: int
    files: tuple[FileAt, ...]


class FilesTaken(Message, frozen=True, tag=43):
    """The answer: they are here as well; or ``refused``: they cannot be stored here."""

    run: int
    names: tuple[str, ...]
    refused: bool = False


class HandOver(Message, frozen=True, tag=44):
    """FLS -> FLS: the sender's records of files whose partitions are the receiver's in the view of ``epoch``. With ``partitions`` come the
    last of them: of these the sender has no more to say than what reaches it late (``Astray``)."""

    epoch: int
    partitions: tuple[int, ...]
    runs: tuple[RunFacts, ...]
    all_said: bool = False  # the sender has missed a view: nobody is to wait for more from it


class Astray(Message, frozen=True, tag=45):
    """FLS -> FLS: ``peer`` said this to the sender, whose view of ``epoch`` says that it is for the receiver."""

    epoch: int
    peer: int
    message: Publish | Replica | Locate | Release | ReadAgain | Poison | FinalizeFiles | Lost


# ── membership ─────────────────────────────────────────────────────────────────────────────────────


class Member(Struct, frozen=True):
    """One node as the others need to know it."""

    node: int
    incarnation: int
    endpoints: tuple[str, ...]  # where its ROUTER listens, best first
    slots: int
    host: str = ""
    data_port: int = 0  # of its data server; 0: it has none
    draining: bool = False  # it takes no tasks, keeps no names, and leaves when its content is elsewhere
    capacity: int = 0  # bytes that its store may keep in memory, by which it shares the partitions; 0: not known
    measured: bool = False  # nobody has said its capacity: it is what was free on its host
    ends: int = 0  # when the batch system ends its job, in seconds since 1970; 0: nobody knows


class View(Message, frozen=True, tag=50):
    """Manager -> new nodes and clients: the members from this epoch on. Higher epoch wins; equal epoch: lower manager id wins."""

    epoch: int
    manager: int
    members: tuple[Member, ...]
    table: tuple[int, ...]  # partition -> node (fs.partition)
    unit_size: int = 0  # nodes per unit; 0: all in one
    in_order: tuple[tuple[int, tuple[int, ...]], ...] = ()  # members of the view before that have left so, and of which runs all is heard

    def slots(self) -> dict[int, int]:
        """Of each member; below 0: it has so many, and takes no more tasks."""
        return {member.node: -member.slots if member.draining else member.slots for member in self.members}


class ViewChange(Message, frozen=True, tag=55):
    """Manager -> members: the view of epoch ``base_epoch`` and ``base_manager`` is followed by the one that ``views.follow`` makes of it. A
    node with another view asks for the whole one."""

    base_epoch: int
    base_manager: int
    manager: int
    joined: tuple[Member, ...] = ()
    left: tuple[int, ...] = ()
    draining: tuple[int, ...] = ()
    moves: int = 0  # at most so many partitions go from nodes that have too many to others
    in_order: tuple[tuple[int, tuple[int, ...]], ...] = ()  # of those that ``left``; as in the view


class Join(Message, frozen=True, tag=51):
    """New node -> manager: let me in; answered by a View that has it. With node == -1: answered by IdAssigned."""

    member: Member


class Heartbeat(Message, frozen=True, tag=52):
    """Node <-> manager, and submitter <-> manager and dispatchers: alive, and at this epoch. ``deaf``: the node, which says so to its
    manager, has not heard it for a while (the network may be cut in one direction), or has said so to others, which may follow another."""

    epoch: int
    deaf: bool = False


class Leave(Message, frozen=True, tag=53):
    """Node -> manager, client (node == -1) -> node: orderly goodbye. Said of another node: I cannot reach it, take it out."""

    node: int
    runs: tuple[int, ...] = ()  # of which all others have heard all that it said (``Farewell``), and it all that they said to it


class Farewell(Message, frozen=True, tag=58):
    """Node that drains -> nodes, submitters: is all heard? Asked until it is answered, by ``heard``: all that the node said before is, its
    view has the node drain, so that it says nothing of files to that any more, and no task is there."""

    number: int
    heard: bool = False


class Withdraw(Message, frozen=True, tag=56):
    """Node -> manager: it drains. The answer is a ViewChange, in which its partitions are those of others."""


class DrainNode(Message, frozen=True, tag=57):
    """Client -> node: drain, within so many milliseconds, and leave."""

    limit_ms: int


class Shutdown(Message, frozen=True, tag=54):
    """Client -> any node: end the session (``amfs down``). ``ordered``: a person wants it; else this side of a session is cut off."""

    ordered: bool = True


# ── questions people ask ───────────────────────────────────────────────────────────────────────────


class StatusAsk(Message, frozen=True, tag=60):
    """Client -> node. ``at_work``: how many of the tasks that run there are to be named, those that run longest."""

    at_work: int = 0


class Status(Message, frozen=True, tag=61):
    """Node -> client: a snapshot for ``amfs status``."""

    node: int
    epoch: int
    data: dict[str, object]


class ExplainAsk(Message, frozen=True, tag=62):
    """Client -> node: why is this task not running? ``task`` is the id as the user wrote it or a tid."""

    run: int
    tid: int


class Explain(Message, frozen=True, tag=63):
    """Node -> client: the task, as this node knows it, in words; empty if it does not."""

    node: int
    lines: tuple[str, ...]


class IdAssigned(Message, frozen=True, tag=65):
    """Manager -> a process that asked to join with node -1: the id that is reserved for it."""

    node: int


class ClientHello(Message, frozen=True, tag=64):
    """Client -> node: answered with the current View."""

    client: int


# ── the file system ────────────────────────────────────────────────────────────────────────────────


class PeerRequest(Message, frozen=True, tag=70):
    """Node -> node: a question of one file system to another. ``call`` is a ``peer_requests.PeerCall``,
    or its plain form, from a decoder that does not know those. Answered by PeerResponse."""

    serial: int
    call: object


class PeerResponse(Message, frozen=True, tag=71):
    """Node -> node: how it went. ``error`` is an errno, 0: fine, then ``value`` is of the type that the call is answered by."""

    serial: int
    error: int = 0
    value: object = None


class FsRequest(Message, frozen=True, tag=72):
    """Client -> its gateway node: an operation of the file system, as ``uid`` and ``gid``. ``request`` is a ``fs_requests.Request``, or
    its plain form, from a decoder that does not know those. Answered by FsResponse."""

    serial: int
    request: object
    uid: int = 0
    gid: int = 0


class FsResponse(Message, frozen=True, tag=73):
    """Node -> client: how it went. ``error`` is an errno, 0: fine, then ``value`` is of the type that the request is answered by."""

    serial: int
    error: int = 0
    value: object = None


AnyMessage = (
    RunBegin | RunReady | Submit | Results | Poison | FinalizeFiles | Flushed | RunEnd | RunGone | Spilled | Assign | Done | TaskMoved
    | OutOfService | StealAsk | StealNone | ReducePlan | PartLost | Locate | Located | FileFailed | Publish | Replica | Release | ReadAgain
    | Drop | Flush | Lost | Fetch | Content | TakeFiles | FilesTaken | HandOver | Astray | View | ViewChange | Join | Heartbeat | Leave
    | Farewell | Withdraw | DrainNode | Shutdown | StatusAsk | Status | ExplainAsk | Explain | ClientHello | IdAssigned
    | PeerRequest | PeerResponse | FsRequest | FsResponse
)  # fmt: skip
