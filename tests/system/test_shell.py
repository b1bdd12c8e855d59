"""``amfs shell``: the paper's listings, as printed but for their typesetting, and what is left when something is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import commands
import pytest

from amfs.cli.main import COMMANDS
from amfs.host import fusemounts, orphans
from amfs.net import records

PATIENCE_S = 60.0  # only turns a hang into a failure
pytestmark = pytest.mark.skipif(os.environ.get("AMFS_TESTS_NO_FUSE") == "1", reason="AMFS_TESTS_NO_FUSE=1")

#: Programs of the paper's applications, as small as they can be and still be told apart.
PROGRAMS = {
    "stage1": 'sleep 0.05; tr a-z A-Z <"$1" >"$2"',
    "stage2": 'rev <"$1" >"$2"',
    "PageRank_Distribution": """awk 'NR == FNR { score[$1] = $2; next }
        { for (i = 2; i <= NF; i++) print $i, score[$1] / (NF - 1) }' "$2" "$1" >"$3" """,
    "PageRank_Sum": """awk '{ sum[$1] += $2 } END { for (page in sum) print page, 0.15 + 0.85 * sum[page] }' "$1" >"$2" """,
    "KMeans-Group": """awk 'NR == FNR { c[$1] = $1; next }
        { best = ""; for (k in c) { d = ($1 - k) ^ 2; if (best == "" || d < min) { min = d; best = k } }
        print best, $1 }' "$2" "$1" >"$3" """,
    "KMeans-centroid": """awk '{ sum[$1] += $2; n[$1]++ } END { for (k in sum) printf "%.6f\\n", sum[k] / n[k] }' "$1" >"$2" """,
    "mProjectPP": 'cat "$1" "$3" >"$2"',
    "mDiffFit": 'cat "$1" "$2" >"$3/$(basename "$1").$(basename "$2")"',
    "mBackground": 'cat "$1" "$3" >"$2"',
    "mImgtbl": 'ls "$1" >"$2"',
    "mOverlaps": 'cp "$1" "$2"',
    "mConcatFit": 'ls "$1" >"$2"',
    "mBgModel": 'cat "$1" "$2" >"$3"',
    "mAdd": 'cat "$1"* >"$2"',
}


class Place:
    """Sessions, programs and scripts of one test."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "programs").mkdir()
        for name, text in PROGRAMS.items():
            path = home / "programs" / name
            path.write_text(f"#!/bin/sh\nset -e\n{text}\n")
            path.chmod(0o755)
        self.env = {
            **os.environ, "AMFS_RUN_DIR": str(home / "run"), "PATH": f"{home}/programs:{Path(sys.executable).parent}:{os.environ['PATH']}",
        }  # fmt: skip
        self.env.pop("AMFS_SESSION", None)

    def start(self, script: str, *options: str) -> subprocess.Popen[str]:
        path = self.home / "script"
        path.write_text(script)
        command = [sys.executable, "-m", "amfs", "shell", *options, str(path)]
        return subprocess.Popen(
            command, env=self.env, cwd=self.home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, script: str, *options: str) -> subprocess.CompletedProcess[str]:
        process = self.start(script, *(options or ("-N", "2", "-s", "2")))
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def amfs(self, *words: str) -> subprocess.CompletedProcess[str]:
        return commands.run(*words, environment=self.env, timeout=PATIENCE_S)

    def left(self) -> list[str]:
        """All that is there of sessions: their directories, mounts, stores, processes."""
        run = str(self.home / "run")
        names = [path.name for path in Path(run).glob("*")] if os.path.isdir(run) else []
        mounts = [mount.path for mount in fusemounts.mounted() if mount.path.startswith(run)]
        processes = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if f"AMFS_RUN_DIR={run}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    processes.append((process / "cmdline").read_text())
            except OSError:
                continue
        stores = [str(path) for name in names for path in orphans.SHM.glob(f"amfs-*-{name}-*")]
        return [*names, *mounts, *stores, *processes]


@pytest.fixture
def place() -> Iterator[Place]:
    home = Path(tempfile.mkdtemp(prefix="amfs-s-", dir="/tmp"))  # short: sockets lie in it
    found = Place(home)
    yield found
    found.amfs("down", "--all")
    until(lambda: not found.left(), lambda: f"left behind: {found.left()}")
    shutil.rmtree(home)


def until(condition: Callable[[], object], what: Callable[[], str] | str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what if isinstance(what, str) else what()
        time.sleep(0.05)


def needs(*commands: str) -> None:
    lacking = [name for name in commands if name not in COMMANDS]
    if lacking:
        pytest.skip(f"amfs {lacking[0]} is not here")


# ── the listings ───────────────────────────────────────────────────────────────────────────────────

INPUTS = "mkdir input temp output; for i in a b c d; do echo data$i >input/$i; done\n"

LISTING_4 = INPUTS + """\
for file in `ls input/`
do
AMFS_queue stage1 input/${file} \\
temp/temp_${file}
done
AMFS_execute
for file in `ls temp/`
do
AMFS_queue stage2 temp/${file} \\
output/out_${file}
done
AMFS_execute
"""

LISTING_5 = INPUTS + """\
for file in `ls input/`
do
AMFS_queue stage1 input/${file} \\
temp/temp_${file}
AMFS_queue stage2 temp/temp_${file} \\
output/out_${file}
done
AMFS_execute
"""


def test_listing_4_two_stages(place: Place) -> None:
    done = place.run(LISTING_4 + "cat output/*\n")
    assert (done.returncode, done.stdout) == (0, "AATAD\nBATAD\nCATAD\nDATAD\n"), done.stderr
    assert not place.left()


def test_listing_5_dependencies_are_resolved(place: Place) -> None:
    """The second stage is also queued before the first, so that it must be parked."""
    more = "AMFS_queue stage1 late.in late\nAMFS_queue stage2 nothing output/none\necho x >late.in\nAMFS_execute; echo $?"
    queued_first = LISTING_5.replace("AMFS_execute", more)
    backwards = queued_first.replace("for file in", "AMFS_queue stage2 temp/temp_d output/early\nfor file in", 1)
    done = place.run(backwards + "cat output/*; cat late\n")
    assert done.stdout == "1\nDATAD\nAATAD\nBATAD\nCATAD\nDATAD\nX\n", done.stderr
    assert "looked in vain for /nothing, and nothing is left that could make it" in done.stderr
    assert "exit status 2" in done.stderr and done.stderr.count(" failed on node") == 1


def test_listing_1_pagerank(place: Place) -> None:
    needs("multicast", "shuffle", "gather")
    given = "mkdir link; printf 'a b c\\nb c\\n' >link/1; printf 'c a\\n' >link/2\n"
    given += "printf 'a 1\\nb 1\\nc 1\\n' >score.txt; converge=1; rounds=0\n"
    listing = """\
while [ ${converge} -ne 0 ];do
AMFS_multicast score.txt

mkdir temp/
for file in `ls link/`
do
AMFS_queue PageRank_Distribution \\
link/${file} score.txt \\
temp/${file}.temp
done
AMFS_execute

mkdir target/
AMFS_shuffle temp/ target/

mkdir result
for file in `ls target/`
do
AMFS_queue PageRank_Sum \\
target/${file} \\
result/${file}.result
done
AMFS_execute

AMFS_gather result/
cat result/* | sort > new-score.txt
converge=`diff score.txt \\
new-score.txt >/dev/null; echo $?`
mv new-score.txt score.txt
rm -r temp target result; rounds=$((rounds + 1)); [ $rounds -lt 3 ] || converge=0
done
"""
    done = place.run(given + listing + "cat score.txt\n")
    score = {"a": 1.0, "b": 1.0, "c": 1.0}
    for _ in range(3):
        score = {"a": 0.15 + 0.85 * score["c"], "b": 0.15 + 0.85 * score["a"] / 2, "c": 0.15 + 0.85 * (score["a"] / 2 + score["b"])}
    assert done.returncode == 0, done.stderr
    found = {page: float(value) for page, value in (line.split() for line in done.stdout.splitlines() if line.count(" ") == 1)}
    assert found == pytest.approx(score, rel=1e-4), done.stderr


def test_listing_2_montage(place: Place) -> None:
    needs("gather")
    given = """mkdir rawdir final; for i in 1 2 3; do echo raw$i >rawdir/$i; done; echo header >template.hdr
process() { case $1 in diffs.tbl) echo "1_2 2_3" ;; *) ls rawdir ;; esac; }
"""
    listing = """\
#mProjectPP
mkdir tempdir/
for file in `ls rawdir/`
do
AMFS_queue mProjectPP rawdir/${file} \\
tempdir/hdu_${file} template.hdr
done
AMFS_execute

AMFS_gather tempdir/
mImgtbl tempdir/ images.tbl

mOverlaps images.tbl diffs.tbl

mkdir diffdir/
for filepair in `process diffs.tbl`
do
AMFS_queue mDiffFit tempdir/hdu_${filepair%_*} tempdir/hdu_${filepair#*_} diffdir/
done
AMFS_execute

AMFS_gather diffdir/
mConcatFit diffdir/ fits.tbl

mBgModel images.tbl fits.tbl corr.tbl

mkdir corrdir/
for file in `process corr.tbl`
do
AMFS_queue mBackground \\
tempdir/hdu_${file} corrdir/${file} corr.tbl
done
AMFS_execute

AMFS_gather corrdir/
mAdd corrdir/ final/m101.fits
"""
    done = place.run(given + listing + "cat corr.tbl; wc -l <final/m101.fits\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-6:] == ["hdu_1", "hdu_2", "hdu_3", "hdu_1.hdu_2", "hdu_2.hdu_3", "21"]


def test_listing_3_kmeans(place: Place) -> None:
    needs("multicast", "shuffle", "gather")
    given = "mkdir input; printf '1\\n2\\n3\\n10\\n' >input/1; printf '11\\n12\\n' >input/2; printf '1\\n2\\n' >centeroid.txt; converge=1\n"
    listing = """\
while [ ${converge} -ne 0 ];do
AMFS_multicast centeroid.txt

mkdir temp/
for file in `ls input/`
do
AMFS_queue KMeans-Group \\
input/${file} centeroid.txt \\
temp/${file}.temp
done
AMFS_execute

mkdir cluster/
AMFS_shuffle temp/ cluster/
find cluster -empty -type f -delete

mkdir centeroid/
for file in `ls cluster/`
do
AMFS_queue KMeans-centroid \\
cluster/${file} \\
centeroid/${file}.centeroid
done
AMFS_execute

AMFS_gather centeroid/
cat centeroid/* | sort -n > \\
new-centeroid.txt
converge=`diff centeroid.txt \\
new-centeroid.txt >/dev/null; echo $?`
mv new-centeroid.txt centeroid.txt
rm -r temp cluster centeroid
done
"""
    done = place.run(given + listing + "cat centeroid.txt\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["2.000000", "11.000000"], (done.stdout, done.stderr)


# ── its life ───────────────────────────────────────────────────────────────────────────────────────


def test_the_status_is_that_of_the_script_and_nothing_is_left(place: Place) -> None:
    assert place.run('type -t AMFS_queue; [ "$PWD" = "$AMFS_MOUNT" ]; bash -c "type -t AMFS_queue"; exit 7').returncode == 7
    assert not place.left()
    refused = place.amfs("shell", "nosuch.sh")
    assert refused.returncode == 2 and "there is no script nosuch.sh" in refused.stderr


def test_a_shell_joins_the_session_that_is_up(place: Place) -> None:
    assert place.amfs("up", "--name", "mine").returncode == 0
    done = place.run("mkdir here; echo $AMFS_SESSION", "--session", "mine")
    assert done.stdout == "mine\n", done.stderr
    assert place.run("pwd", "-C", "here").stdout.endswith("/here\n")
    assert place.run("true", "-C", "nowhere").returncode == 2
    assert not [mount for mount in fusemounts.mounted("mine") if "mount-" in mount.path]


def test_tasks_go_on_when_the_shell_is_killed(place: Place) -> None:
    process = place.start("echo $$; for i in 1 2 3; do AMFS_queue sh -c 'sleep 1; echo x >'$i; done; AMFS_execute", "-N", "1", "-s", "2")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    until(lambda: "1 being executed" in place.amfs("queue", "--status").stdout, "it is under way")
    os.kill(pid, signal.SIGKILL)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 137 and "its tasks are still in session" in said, said
    assert place.amfs("execute").returncode == 0
    assert place.amfs("ls", "amfs:/").stdout.split() == ["1", "2", "3"]


def test_a_terminated_shell_ends_its_session(place: Place) -> None:
    process = place.start("echo ready; AMFS_queue sleep 60; AMFS_execute", "-N", "1")
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    until(lambda: "1 being executed" in place.amfs("queue", "--status").stdout, "it is under way")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode in (143, 137)
    until(lambda: not place.left(), lambda: f"left behind: {place.left()}")


@pytest.mark.soak  # test_dies_midway.py has the tasks that run again
def test_a_node_that_dies_is_told_of(place: Place) -> None:
    script = "echo go; for i in 1 2 3 4 5 6; do AMFS_queue sh -c 'sleep 4; echo x >'$i; done; AMFS_execute; echo $?; ls"
    process = place.start(script, "-N", "3", "-s", "2")
    assert process.stdout is not None and process.stdout.readline() == "go\n"
    until(lambda: "6 running" in place.amfs("queue", "--status").stdout, "all are running")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMFS_RUN_DIR", place.env["AMFS_RUN_DIR"])
        session = records.list_all()[0]
    os.kill(session.nodes[2].pid, signal.SIGKILL)
    out, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and out.split()[0] == "0", (out, said)
    assert set(out.split()[1:]) == {str(i) for i in range(1, 7)} and "node 2 was lost" in said, (out, said)
