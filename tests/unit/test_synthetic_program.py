"""amfs-synthetic: content that follows from names, checked inputs, exact sizes, time taken."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
import xxhash

from amfs.libexec import program

MASK = (1 << 64) - 1


def content(name: str, size: int) -> bytes:
    """The definition once more, from its words alone."""
    state = xxhash.xxh64_intdigest(name.encode())
    words = []
    for _ in range(-(-size // 8)):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        word = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
        words.append((word ^ (word >> 31)).to_bytes(8, "little"))
    return b"".join(words)[:size]


def run(here: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("amfs-synthetic"), *words], cwd=here, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, (1 << 17) - 1, 1 << 17, (1 << 17) + 5])
def test_content_is_as_defined_and_checks_itself(tmp_path: Path, size: int) -> None:
    name = "d/ü f"
    assert run(tmp_path, "0", "-o", name, str(size)).returncode == 0
    assert (tmp_path / name).read_bytes() == content(name, size)
    assert run(tmp_path, "0", "-i", name, str(size)).returncode == 0
    (tmp_path / "moved").write_bytes(content(name, size))
    assert run(tmp_path, "--check", "moved", name, str(size)).returncode == 0


@pytest.mark.parametrize("at", [0, 1, 131071, 131072, 199_999])
def test_every_byte_counts(tmp_path: Path, at: int) -> None:
    data = bytearray(content("f", 200_000))
    data[at] ^= 1
    (tmp_path / "f").write_bytes(data)
    done = run(tmp_path, "0", "-i", "f", "200000", "-o", "out", "5")
    assert (done.returncode, done.stderr) == (1, f"amfs-synthetic: f: byte {at} is {data[at]}, not {data[at] ^ 1}\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("there", "wanted", "says"),
    [
        (10, 11, "shorter than the 11 bytes it should have"),
        (11, 10, "longer than the 10 bytes it should have"),
        (0, 1, "shorter"),
        (1, 0, "longer"),
        (131072, 131073, "shorter"),
        (131073, 131072, "longer"),
    ],
)
def test_sizes_are_exact(tmp_path: Path, there: int, wanted: int, says: str) -> None:
    (tmp_path / "f").write_bytes(content("f", there))
    done = run(tmp_path, "--check", "f", "f", str(wanted))
    assert done.returncode == 1
    assert says in done.stderr


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    assert "No such file" in run(tmp_path, "0", "-i", "f", "1").stderr
    (tmp_path / "f").write_text("")
    assert "Not a directory" in run(tmp_path, "0", "-o", "f/g", "1").stderr
    done = run(tmp_path, "0", "-o", "/dev/full", "1")
    assert (done.returncode, done.stderr) == (1, "amfs-synthetic: /dev/full: No space left on device\n")


def test_it_takes_the_time_it_is_told(tmp_path: Path) -> None:
    for words in (("0.2",), ("-b", "0.2")):
        begin = time.monotonic()
        assert run(tmp_path, *words).returncode == 0
        assert 0.2 <= time.monotonic() - begin < 5


def test_busy_means_on_a_cpu() -> None:
    used = []
    for words in (["0.3"], ["-b", "0.3"]):
        pid = os.posix_spawn(program("amfs-synthetic"), ["amfs-synthetic", *words], os.environ)
        used.append(os.wait4(pid, 0)[2].ru_utime)
    assert used[0] < 0.02 < used[1]


@pytest.mark.parametrize(
    "words",
    [
        (), ("-b",), ("x",), ("-1",), ("nan",), ("inf",), ("1e10",), ("0", "-i"), ("0", "-i", "f"), ("0", "-i", "f", "x"),
        ("0", "-i", "f", "-1"), ("0", "-x", "f", "1"), ("0", "-o", "", "1"), ("--check", "f"), ("0", "-o", "f", "99999999999999999999"),
    ],
)  # fmt: skip
def test_wrong_usage(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run(tmp_path, *words)
    assert done.returncode == 2
    assert "usage: amfs-synthetic" in done.stderr
    assert not list(tmp_path.iterdir())
