"""``benchmarks urls``: load from and dump to a bucket, beside obstore alone in one process, in turn.

Owns the rows. Both move the same bytes between the same server and memory of this machine; obstore alone writes files in /dev/shm.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from amfs.client.files import Files
from amfs.errors import UsageError
from amfs.operations.loading import dump, load
from amfs.remote.opening import Storages
from amfs.remote.settings import load as load_settings
from amfs.remote.settings import s3_config
from benchmarks.mounts import Session

THREADS = 32
SMALL_BYTES = 1000
SMALL_TARGET, LARGE_TARGET = 0.5, 0.8
_RANGE = 8 << 20
_MIB = 1 << 20


class Row(msgspec.Struct):
    """Seconds of each turn, and the median of the ratios."""

    what: str
    amfs: list[float]
    obstore: list[float]
    ratio: float
    target: float

    @property
    def passed(self) -> bool:
        return self.ratio >= self.target


class Raw:
    """obstore alone."""

    def __init__(self, bucket: str) -> None:
        import obstore
        from obstore.store import S3Store

        config: Any = s3_config(load_settings().of(f"s3://{bucket}/"))
        self.obstore = obstore
        self.store = S3Store(bucket, config=config, client_options={"allow_http": True, "timeout": "1h"})
        self.place = Path(tempfile.mkdtemp(prefix="amfs-bench-", dir="/dev/shm"))

    def close(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)

    def get_all(self, prefix: str) -> None:
        keys = [one["path"] for batch in self.obstore.list(self.store, prefix, chunk_size=1000) for one in batch]

        def get(key: str) -> None:
            (self.place / key.replace("/", "-")).write_bytes(self.obstore.get(self.store, key).bytes())

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(get, keys))

    def get_large(self, key: str, size: int) -> None:
        with open(self.place / "large", "wb") as file, ThreadPoolExecutor(8) as pool:

            def get(at: int) -> None:
                os.pwrite(file.fileno(), self.obstore.get_range(self.store, key, start=at, end=min(size, at + _RANGE)), at)

            list(pool.map(get, range(0, size, _RANGE)))

    def put_all(self, prefix: str, count: int) -> None:
        def put(number: int) -> None:
            self.obstore.put(self.store, f"{prefix}/{number:05}", (self.place / f"{number:05}").read_bytes(), use_multipart=False)

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(put, range(count)))

    def put_large(self, key: str) -> None:
        self.obstore.put(self.store, key, self.place / "large", chunk_size=_RANGE)


def _seconds(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def measure(bucket: str, *, count: int, mib: int, nodes: int, repeat: int, say: Callable[[str], None]) -> list[Row]:
    """``bucket`` exists, and loses what is below ``amfs-bench/``. Raises AmfsError, OSError."""
    if "/" in bucket:
        raise UsageError("the name of a bucket, without s3://")
    top = f"amfs-bench/{os.getpid()}"
    ours = f"s3://{bucket}/{top}"
    raw, session = Raw(bucket), Session(nodes)
    names = ("load-small", "dump-small", "load-large", "dump-large")
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
    try:
        for number in range(count):
            (raw.place / f"{number:05}").write_bytes(os.urandom(SMALL_BYTES))
        (raw.place / "large").write_bytes(os.urandom(_MIB) * mib)
        with Files(session.file) as files:
            for turn in range(repeat):
                say(f"turn {turn + 1} of {repeat}")
                pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
                    "dump-small": (partial(dump, files, "/small", f"{ours}/a-small-{turn}"),
                                   partial(raw.put_all, f"{top}/r-small-{turn}", count)),
                    "load-small": (partial(load, files, f"{ours}/small", f"/small-{turn}"), partial(raw.get_all, f"{top}/small")),
                    "dump-large": (partial(dump, files, "/large", f"{ours}/a-large-{turn}"),
                                   partial(raw.put_large, f"{top}/r-large-{turn}")),
                    "load-large": (partial(load, files, f"{ours}/large", f"/large-{turn}"),
                                   partial(raw.get_large, f"{top}/large", mib * _MIB)),
                }  # fmt: skip
                if not turn:
                    raw.put_all(f"{top}/small", count)
                    raw.put_large(f"{top}/large")
                    for source, target in (("small", "/small"), ("large", "/large")):
                        if not load(files, f"{ours}/{source}", target).ok:
                            raise UsageError(f"{ours}/{source} could not be loaded")
                for name in names:
                    both = list(zip(times[name], pairs[name], strict=True))
                    for found, act in both if turn % 2 else reversed(both):
                        found.append(_seconds(act))
                files.rmtree(f"/small-{turn}")
                files.unlink(f"/large-{turn}")
    finally:
        session.close()
        raw.close()
        place = Storages(load_settings()).place(f"s3://{bucket}/")
        for one in place.remote.list(f"{top}/"):
            place.remote.delete(one.key)
    what = {
        "load-small": f"{count} objects of {SMALL_BYTES} bytes, load", "dump-small": "  dump",
        "load-large": f"one object of {mib} MiB, load", "dump-large": "  dump",
    }  # fmt: skip
    return [
        Row(what[name], mine, theirs, statistics.median(b / a for a, b in zip(mine, theirs, strict=True)),
            SMALL_TARGET if "small" in name else LARGE_TARGET)
        for name, (mine, theirs) in times.items()
    ]  # fmt: skip
