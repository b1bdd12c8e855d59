"""Costs on this machine, as the simulator needs them: the record, its file, and defaults. ``bench.measure`` measures."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from amfs.errors import AmfsError, UsageError
from amfs.host import folders


class Costs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CPU times in microseconds (``_us``), latency in seconds, bandwidth in bytes a second.

    The defaults were measured on a virtual machine with 2 CPUs. ``task_us_*``: engine CPU for each task, by who spends it;
    ``message_us``: to encode and decode one task or result in a batch; ``latency_s``: one small message to another process, half a round
    trip; ``bandwidth_bytes_s``: one large file from memory to memory; ``spawn_us``: from the wish to start a program without C library
    to its end; ``file_us``: to write, rename, read and remove a small file in the store.
    """

    task_us_worker: float = 65.0
    task_us_dispatcher: float = 8.0
    task_us_submitter: float = 5.0
    task_us_fls: float = 5.0
    message_us: float = 0.3
    latency_s: float = 0.000075
    bandwidth_bytes_s: float = 2.2e9
    spawn_us: float = 60.0
    file_us: float = 20.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not 0.0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a positive number, not {getattr(self, name)}")


def costs_path() -> Path:
    """Where ``amfs bench costs`` leaves its results: below ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    return folders.cache() / "costs.json"


def load_costs(path: Path | None = None) -> Costs:
    """The costs in ``path``; without one, those measured on this machine, or the defaults if none were. Raises UsageError if unreadable."""
    place = path or costs_path()
    try:
        return msgspec.json.decode(place.read_bytes(), type=Costs)
    except FileNotFoundError:
        if path is None:
            return Costs()
        raise UsageError(f"cannot read {place}: there is no such file; `amfs bench costs --file {place}` makes it") from None
    except OSError as error:
        raise UsageError(f"cannot read {place}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise UsageError(f"{place} does not hold costs ({error}); `amfs bench costs` writes it anew") from None


def save_costs(costs: Costs, path: Path) -> None:
    """Write them, whole or not at all. Raises AmfsError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(costs)) + b"\n")
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise AmfsError(f"cannot write {path}: {error.strerror}") from None
