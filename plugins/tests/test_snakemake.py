"""Snakemake itself with amfs as its executor."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "snakemake/example/Snakefile"
SUM = str(2 * sum(i * i for i in range(1, 100)))


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "snakemake", "--executor", "amfs", "--jobs", "20", "--nocolor", *words]


def snakemake(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), cwd=place, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200)


def write(place: Path, text: str) -> None:
    (place / "Snakefile").write_text(text)


def test_200_jobs_here(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path)
    done = snakemake(tmp_path, "--amfs-slots", "2")
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "out/report.txt").read_text().strip() == SUM
    assert "200 of 200 steps" in done.stdout
    again = snakemake(tmp_path)
    assert again.returncode == 0 and "Nothing to be done" in again.stdout


def test_200_jobs_in_a_session(tmp_path: Path, session: str) -> None:
    shutil.copy(EXAMPLE, tmp_path)
    done = snakemake(tmp_path, "--amfs-session", session)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "out/report.txt").read_text().strip() == SUM


FAILING = """
rule all:
    input: "good", "bad"
rule good:
    output: "good"
    shell: "echo x >> {log}; touch {output}"
    log: "good.log"
rule bad:
    output: "bad"
    shell: "touch {output}; if [ ! -e mended ]; then echo my reason >&2; exit 7; fi"
"""


def test_a_failure_is_told_and_mended(tmp_path: Path) -> None:
    write(tmp_path, FAILING.replace('    log: "good.log"\n', "").replace("{log}", "count"))
    failed = snakemake(tmp_path, "--keep-going")
    assert failed.returncode == 1
    assert "exit status 7" in failed.stdout and "my reason" in failed.stdout
    assert (tmp_path / "good").exists() and not (tmp_path / "bad").exists()  # Snakemake removes what a failed job leaves
    (tmp_path / "mended").touch()
    done = snakemake(tmp_path)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "count").read_text() == "x\n"  # the finished job did not run again


KINDS = """
rule all:
    input: "a", "b", "c", "d"
rule script:
    output: "a"
    script: "make_a.py"
rule run:
    output: "b"
    run: open(output[0], "w").write("of run")
rule shell_in_bash:
    output: "c"
    threads: 2
    resources: tmpdir="scratch", mem_mb=10, runtime=1
    shell: "f=( x y ); echo ${{f[1]}} $OMP_NUM_THREADS $TMPDIR > {output}"
rule measured:
    output: "d"
    benchmark: "d.tsv"
    shell: "touch {output}"
"""


def test_all_kinds_of_jobs(tmp_path: Path) -> None:
    write(tmp_path, KINDS)
    (tmp_path / "make_a.py").write_text("open(snakemake.output[0], 'w').write('of the script')\n")
    done = snakemake(tmp_path)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "a").read_text() == "of the script"
    assert (tmp_path / "b").read_text() == "of run"
    assert (tmp_path / "c").read_text() == "y 2 scratch\n"
    assert (tmp_path / "d.tsv").read_text().startswith("s\t")


def test_an_interrupt_ends_the_jobs(tmp_path: Path) -> None:
    write(tmp_path, 'rule all:\n    output: "never"\n    shell: "echo $$ > pid; exec sleep 300"\n')
    pipe = subprocess.PIPE
    process = subprocess.Popen(command(), cwd=tmp_path, stdout=pipe, stderr=subprocess.STDOUT, start_new_session=True)
    end = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().endswith("\n"):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_session_that_is_not_there(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path)
    refused = snakemake(tmp_path, "--amfs-session", "no-such-session")
    assert refused.returncode == 1
    assert "no-such-session" in refused.stdout and "Traceback" not in refused.stdout
