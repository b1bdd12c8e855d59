"""Runs whose files are several times larger than the nodes' memory, with real processes and a real disk: right bytes, nothing left.

The worker's decisions are tested in ``tests/core/test_worker_memory.py``; here are the disk, its faults, and remains of a killed process.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

SIZE = 1 << 20
COUNT = 12
LIMIT = "3M"


def amfs(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "amfs", *args], cwd=cwd, capture_output=True, text=True, timeout=100)


def content(number: int) -> bytes:
    return b"%d\n" % number * (SIZE // len(b"%d\n" % number))


def workflow(between: str = "true", wait_s: float = 0.0) -> str:
    """COUNT files of a megabyte, all of which live when the task ``between`` runs; then one reader each, and one of all."""
    parts = " ".join(f"part{i}" for i in range(COUNT))
    lines = [
        f"make{i} -b sh -o part{i} -a -c 'yes {i} | head -c {len(content(i))} > part{i}'" for i in range(COUNT)
    ]
    lines.append("between -b sh -after " + " ".join(f"make{i}" for i in range(COUNT)) + f" -a -c '{between}'")
    lines += [
        f"sum{i} -b sh -i part{i} -o sum{i} -after between -a -c 'sleep {wait_s}; md5sum < part{i} > sum{i}'" for i in range(COUNT)
    ]
    lines.append(f"all -b sh -i {parts} -o all -after between -a -c 'cat {parts} | md5sum > all'")
    return "\n".join(lines) + "\n"


def expected() -> dict[str, str]:
    sums = {f"sum{i}": hashlib.md5(content(i)).hexdigest() for i in range(COUNT)}
    return {**sums, "all": hashlib.md5(b"".join(content(i) for i in range(COUNT))).hexdigest()}


def found(place: Path) -> dict[str, str]:
    return {path.name: path.read_text().split()[0] for path in place.iterdir() if path.name.startswith("sum") or path.name == "all"}


@pytest.fixture
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("disk")


def test_five_times_the_memory_and_the_right_bytes(tmp_path: Path, disk: Path) -> None:
    (tmp_path / "list").write_text(workflow())
    options = ("--local", "--store-limit", LIMIT, "--spill", str(disk), "--slots", "2", "--no-journal", "--trace", "trace")
    ran = amfs("run", *options, "list", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert found(tmp_path) == expected()
    told = [event["args"] for event in json.loads((tmp_path / "trace").read_text()) if event["name"] == "bytes spilled"]
    assert told and told[0]["spilled"] >= SIZE // 2
    assert not list(disk.iterdir()), "the spill directory is removed at the end"
    assert "spilled" in ran.stderr


def test_nodes_of_a_session_serve_what_they_have_spilled(tmp_path: Path, disk: Path) -> None:
    (tmp_path / "list").write_text(workflow())
    up = amfs("up", "--nodes", "2", "--slots", "1", "--store-limit", "2M", "--spill", str(disk), cwd=tmp_path)
    assert up.returncode == 0, up.stderr
    session = up.stdout.strip()
    try:
        ran = amfs("run", "list", "--session", session, "--placement", "even", "--no-journal", cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        assert found(tmp_path) == expected()
        until(lambda: not [path for path in disk.rglob("*") if path.name.isalnum() and path.is_file() and path.name != "store"],
              "files of a run that is over are left in the spill directory")  # fmt: skip
    finally:
        assert amfs("down", session, cwd=tmp_path).returncode == 0
    assert not list(disk.iterdir())


def test_without_a_spill_directory_tasks_fail_and_a_second_run_does_the_rest(tmp_path: Path, disk: Path) -> None:
    (tmp_path / "list").write_text(workflow())
    options = ("--local", "--store-limit", LIMIT, "--journal", "journal", "--slots", "2")
    ran = amfs("run", *options, "--spill", "none", "list", cwd=tmp_path)
    assert ran.returncode == 1
    assert "node 0 has no room for part" in ran.stderr
    assert "of 3.1 MB (--store-limit) are taken by files that are still needed" in ran.stderr
    assert "spilling is switched off (--spill none). Give a larger --store-limit, more nodes, or with --spill a directory" in ran.stderr
    assert not found(tmp_path), "nothing is half-made"
    ran = amfs("run", *options, "--spill", str(disk), "--resume", "list", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert found(tmp_path) == expected()


def test_a_spill_directory_that_is_full_is_named_and_a_second_run_does_the_rest(tmp_path: Path, disk: Path) -> None:
    (tmp_path / "list").write_text(workflow())
    options = ("--local", "--store-limit", LIMIT, "--journal", "journal", "--slots", "2", "--spill", str(disk))
    ran = amfs("run", *options, "--spill-limit", "2M", "list", cwd=tmp_path)
    assert ran.returncode == 1
    assert "node 0 has no room for part" in ran.stderr and "the spill directory holds all that it may (--spill-limit)" in ran.stderr
    assert not found(tmp_path) and not list(disk.iterdir())
    ran = amfs("run", *options, "--resume", "list", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert found(tmp_path) == expected()


def test_a_disk_without_room_is_named(tmp_path: Path, disk: Path) -> None:
    """Of a file system of 2 MB in a name space of its own, which an ordinary user may mount where that is allowed; else root mounts it."""
    small = disk / "small"
    small.mkdir()
    (tmp_path / "list").write_text(workflow())
    run = f"{sys.executable} -m amfs run --local --no-journal --store-limit {LIMIT} --slots 2 --spill {small} list"
    script = f"mount -t tmpfs -o size=2m none {small} && exec {run}"
    spaces = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    if subprocess.run([*spaces, "mount", "-t", "tmpfs", "none", str(small)], capture_output=True).returncode:
        # Files of that size cannot be made: for a task as for the node.
        script = f"ulimit -f {SIZE * 2 // 512}; exec {run} --spill-limit 2M"
        spaces = []
    ran = subprocess.run([*spaces, "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 1
    assert "node 0 has no room for part" in ran.stderr, ran.stderr
    assert "No space left on device" in ran.stderr or "holds all that it may" in ran.stderr


def test_shared_storage_that_is_full_fails_the_task_whole_and_a_second_run_does_the_rest(tmp_path: Path, disk: Path) -> None:
    """Of 2 MB, in a name space of its own; where an ordinary user may not have one, something else has the name for a while."""
    shared = disk / "shared"
    shared.mkdir()
    big = "big -b sh -o big -a -c 'head -c 3000000 /dev/zero > big'"
    (tmp_path / "list").write_text(f"{big}\nsmall -b sh -o small -a -c 'echo 1 > small'\n")
    run = f"{sys.executable} -m amfs run --local --journal {tmp_path}/journal -C {shared}"
    spaces = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    fill, ease = f"mount -t tmpfs -o size=2m none {shared}", f"mount -o remount,size=20m {shared}"
    if subprocess.run([*spaces, "mount", "-t", "tmpfs", "none", str(shared)], capture_output=True).returncode:
        spaces, fill = [], f"mkdir {shared}/big"
        ease = f"rmdir {shared}/big"
    script = f"{fill}; {run} list; echo $?; ls -A {shared}; {ease}; {run} --resume list; echo $?; wc -c < {shared}/big"
    ran = subprocess.run([*spaces, "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    first, *left, second, size = ran.stdout.split()
    assert (first, second, size) == ("1", "0", "3000000"), ran.stdout + ran.stderr
    assert "cannot write its output" in ran.stderr and "Traceback" not in ran.stderr
    assert left == (["small"] if spaces else ["big", "small"]), "something half-written is there"


def test_what_the_disk_has_lost_is_made_again(tmp_path: Path, disk: Path) -> None:
    """Files vanish from the spill directory, others become shorter: no task reads anything wrong."""
    shorten = "chmod u+w $f; truncate -s 1000 $f"
    each = f"n=$((n+1)); if [ $((n%2)) = 0 ]; then rm $f; else {shorten}; fi"
    break_it = f"cd {disk}/amfs-*/ || exit 1; n=0; for f in [0-9a-f]*; do {each}; done"
    (tmp_path / "list").write_text(workflow(break_it))
    ran = amfs("run", "--local", "--store-limit", "8M", "--spill", str(disk), "--slots", "2", "--no-journal", "list", cwd=tmp_path)
    got, right = found(tmp_path), expected()
    assert all(right[name] == value for name, value in got.items()), "a task has read what was broken"
    assert len(got) >= COUNT, ran.stderr
    assert "the spill directory is not used any more" in ran.stderr or ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("damage", ["rm -f [0-9a-f]*", "chmod u+w [0-9a-f]*; truncate -s 1000 [0-9a-f]*"])
def test_a_task_whose_inputs_the_disk_loses_while_it_reads_them_runs_again(tmp_path: Path, disk: Path, damage: str) -> None:
    """Its pipeline ends well all the same."""
    lines = [line for line in workflow().splitlines() if not line.startswith("all ")]
    parts = " ".join(f"part{i}" for i in range(COUNT))
    damaged = tmp_path / "damaged"
    script = f"[ -e {damaged} ] || (touch {damaged}; cd {disk}/amfs-*/ && {damage}); cat {parts} | md5sum > all"
    lines.append(f'all -b sh -i {parts} -o all -after between -a -c "{script}"')
    (tmp_path / "list").write_text("\n".join(line for line in lines if not line.startswith("sum")) + "\n")
    ran = amfs("run", "--local", "--store-limit", "8M", "--spill", str(disk), "--slots", "2", "--no-journal", "list", cwd=tmp_path)
    assert damaged.exists() and ran.returncode == 0, ran.stderr
    assert found(tmp_path) == {"all": expected()["all"]}, "the task has read what was broken"


def test_a_killed_run_leaves_a_spill_directory_to_the_run_that_resumes_it(tmp_path: Path, disk: Path) -> None:
    (tmp_path / "list").write_text(workflow(f"touch {tmp_path}/there; sleep 20"))
    options = ("--local", "--store-limit", LIMIT, "--spill", str(disk), "--journal", "journal", "--slots", "1")
    process = subprocess.Popen([sys.executable, "-m", "amfs", "run", *options, "list"], cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        until(lambda: (tmp_path / "there").exists(), "it does not get so far")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (left,) = disk.iterdir()
    assert [path for path in left.iterdir() if path.stat().st_size >= SIZE // 2], "something was spilled"
    (tmp_path / "list").write_text(workflow("true"))
    ran = amfs("run", *options, "--resume", "list", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert found(tmp_path) == expected()
    assert f"{COUNT} done before" in ran.stderr, ran.stderr
    assert not list(disk.iterdir()), "the directory of the killed run is left"


def test_an_interrupted_run_sets_aside_what_was_spilled_too(tmp_path: Path, disk: Path) -> None:
    (tmp_path / "list").write_text(workflow(f"touch {tmp_path}/there; sleep 20"))
    options = ("--local", "--store-limit", LIMIT, "--spill", str(disk), "--journal", "journal", "--slots", "1")
    words = [sys.executable, "-m", "amfs", "run", *options, "list"]
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: (tmp_path / "there").exists(), "it does not get so far")
    finally:
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    assert process.returncode == 130 and "could not be set aside" not in said, said
    assert not list(disk.iterdir())
    (tmp_path / "list").write_text(workflow("true"))
    ran = amfs("run", *options, "--resume", "list", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert found(tmp_path) == expected()
    assert f"{COUNT} done before" in ran.stderr, ran.stderr


def test_the_spill_directory_of_a_killed_session_is_swept(tmp_path: Path, disk: Path) -> None:
    (tmp_path / "list").write_text(workflow(f"touch {tmp_path}/there; sleep 20"))
    up = amfs("up", "--slots", "1", "--store-limit", LIMIT, "--spill", str(disk), cwd=tmp_path)
    session = up.stdout.strip()
    process = subprocess.Popen([sys.executable, "-m", "amfs", "run", "--session", session, "--no-journal", "list"], cwd=tmp_path)
    try:
        until(lambda: (tmp_path / "there").exists(), "it does not get so far")
        status = amfs("status", session, cwd=tmp_path).stdout
        assert "spilled" in status and "MB" in status
        facts = json.loads(amfs("status", session, "--output", "json", cwd=tmp_path).stdout)
        (node,) = facts["sessions"][0]["nodes"]
        assert node["spilled"] >= 8 * SIZE and 0 < node["memory"] <= node["memory_limit"] == 3 << 20
        os.kill(node["pid"], signal.SIGKILL)
        assert list(disk.iterdir()), "else this test shows nothing"
    finally:
        process.kill()
        process.wait()
        amfs("down", session, cwd=tmp_path)
    assert not list(disk.iterdir())


def test_bad_options_are_refused(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("a -b true\n")
    ran = amfs("run", "--local", "--spill", "nowhere", "list", cwd=tmp_path)
    assert ran.returncode == 5
    assert f"cannot spill to {tmp_path}/nowhere: it is not a directory that this user may write in; --spill names another" in ran.stderr
    ran = amfs("run", "--local", "--high-water", "1.5", "list", cwd=tmp_path)
    assert ran.returncode == 2 and "--high-water" in ran.stderr
    ran = amfs("run", "--local", "--spill-limit", "much", "list", cwd=tmp_path)
    assert ran.returncode == 2 and "'much' is not a size" in ran.stderr
    ran = amfs("up", "--spill", "nowhere", cwd=tmp_path)
    assert ran.returncode != 0 and f"cannot spill to {tmp_path}/nowhere" in ran.stderr
