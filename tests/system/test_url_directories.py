"""Directories that tasks make and that go to URLs: the objects afterwards, their readers on every node, and the faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fs_session import running
from servers import S3, Sftp, s3_in_environment
from test_url_runs import run

s3 = pytest.fixture(scope="module", name="s3")(s3_in_environment)

RECORD = ".amfs-directory"


def contents(s3: S3, bucket: str, top: str) -> dict[str, bytes]:
    """The objects below a key, without the record of amfs."""
    keys = [key for key in s3.keys(bucket) if key.startswith(top)]
    return {key[len(top) :]: s3.content(bucket, key) for key in keys if not key.endswith(RECORD)}


def test_a_directory_is_put_there_file_by_file(s3: S3, tmp_path: Path) -> None:
    s3.put("made", {})
    script = "mkdir -p $0/b/c $0/none && echo 1 > $0/a && echo 22 > '$0/b/c/x y' && ln -s ../a $0/b/l && ln a2 $0/h && chmod 0 $0/a"
    script = script.replace("'$0/b/c/x y'", '"$0/b/c/x y"')
    (tmp_path / "a2").write_text("input\n")
    (tmp_path / "tasks").write_text(
        f"a -b sh -i a2 -o s3://made/out/d/ -a -c '{script}' s3:/made/out/d\n"
        "b -b sh -i s3://made/out/d -stdout names -a -c 'cd s3:/made/out/d && find . | sort && cat a'\n"
    )
    done = run(tmp_path, "--local", "tasks")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert contents(s3, "made", "out/d/") == {"a": b"1\n", "b/c/x y": b"22\n", "b/l": b"1\n", "h": b"input\n"}
    assert (tmp_path / "names").read_text().split("\n") == [".", "./a", "./b", "./b/c", "./b/c/x y", "./b/l", "./h", "1", ""]
    assert sorted(os.listdir(tmp_path)) == ["a2", "names", "tasks"]
    record = json.loads(s3.content("made", f"out/d/{RECORD}"))
    assert {name: size for name, (size, _) in record["files"].items()} == {"a": 2, "b/c/x y": 3, "b/l": 2, "h": 6}


def test_what_an_earlier_run_put_there_goes_and_what_others_put_there_stays(s3: S3, tmp_path: Path) -> None:
    s3.put("again", {"d/theirs": b"theirs", "d/both": b"theirs", f"d/{RECORD}": b"is no record"})
    line = "a -b sh -o s3://again/d/ -a -c 'mkdir $0; cd $0; touch %s' s3:/again/d\n"
    for names in ("both old taken kept", "both kept new"):
        (tmp_path / "tasks").write_text(line % names)
        done = run(tmp_path, "--local", "tasks")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        if "old" in names:
            s3.client.put_object(Bucket="again", Key="d/taken", Body=b"changed by others")
    assert contents(s3, "again", "d/") == {
        "both": b"", "kept": b"", "new": b"", "theirs": b"theirs", "taken": b"changed by others",
    }  # fmt: skip


def test_a_resumed_run_looks_at_the_files(s3: S3, tmp_path: Path) -> None:
    s3.put("resumed", {"d/theirs": b"theirs"})
    (tmp_path / "tasks").write_text("a -b sh -o s3://resumed/d/ -a -c 'mkdir $0; echo 1 > $0/a; echo 2 > $0/b' s3:/resumed/d\n")
    skipped = '"skipped":%d'
    counts = []
    for change in (False, False, True):
        if change:  # to another content of the same size
            s3.client.put_object(Bucket="resumed", Key="d/b", Body=b"3\n")
        done = run(tmp_path, "--local", "--resume", "--output", "json", "tasks")
        assert done.returncode == 0, done.stderr
        counts.append(skipped % 1 in done.stdout)
        assert contents(s3, "resumed", "d/") == {"a": b"1\n", "b": b"2\n", "theirs": b"theirs"}
    assert counts == [False, True, False]


def test_another_node_reads_what_the_task_has_made(s3: S3, tmp_path: Path) -> None:
    s3.put("nodes", {"d/theirs": b"theirs"})
    script = "for d; do mkdir -p $d/b; echo 1 > $d/a; echo 2 > $d/b/c; done"
    compare = "diff -r s3:/nodes/d/ mapped/ && cd mapped && find . | sort"
    (tmp_path / "tasks").write_text(
        "#amfs path mapped s3://nodes/m/\n"
        f"a -b sh -node 0 -o s3://nodes/d mapped -a -c '{script}' sh s3:/nodes/d mapped\n"
        + "".join(f"r{node} -b sh -node {node} -i s3://nodes/d mapped -stdout o{node} -a -c '{compare}'\n" for node in (0, 1))
    )
    with running(2, "--replicas", "1"):
        done = run(tmp_path, "tasks")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        for node in (0, 1):
            assert (tmp_path / f"o{node}").read_text().split() == [".", "./a", "./b", "./b/c"]
        assert contents(s3, "nodes", "d/") == {"a": b"1\n", "b/c": b"2\n", "theirs": b"theirs"}
        assert contents(s3, "nodes", "m/") == {"a": b"1\n", "b/c": b"2\n"}
    assert sorted(os.listdir(tmp_path)) == ["o0", "o1", "tasks"]


FAULTS = {
    "mkdir $0": "output s3:/wrong/d has no file in it",
    "mkdir $0 && touch $0/a && ln -s / $0/l": "output s3:/wrong/d has a link to a directory: l",
    "mkdir -p $0/b && ln -s none $0/b/l": "output s3:/wrong/d has a link that leads nowhere: b/l",
    "mkdir $0 && mkfifo $0/p": "output s3:/wrong/d has what is no file and no directory: p",
    "mkdir $0 && touch $0/.amfs-directory": "has a name that begins with .amfs-",
    "mkdir x && touch x/a && ln -s ../../x $0": "output s3:/wrong/d is a link to a directory",
}


def test_what_cannot_be_a_directory_there_fails_its_task(s3: S3, tmp_path: Path) -> None:
    s3.put("wrong", {"object": b"old"})
    lines = [f"t{n} -b sh -o s3://wrong/d{n}/ -a -c '{script}' s3:/wrong/d{n}\n" for n, script in enumerate(FAULTS)]
    lines.append("o -b sh -o s3://wrong/object/ -a -c 'mkdir $0 && touch $0/a' s3:/wrong/object\n")
    lines.append("n -b sh -o s3://wrong/n/ -a -c 'mkdir $0 && touch $0/$(printf \"\\\\377\")' s3:/wrong/n\n")
    lines.append("f -b touch -o mapped -a mapped\n")
    (tmp_path / "tasks").write_text("#amfs path mapped s3://wrong/m/\n" + "".join(lines))
    done = run(tmp_path, "--local", "tasks")
    assert done.returncode == 1
    for number, words in enumerate(FAULTS.values()):
        assert words.replace("wrong/d", f"wrong/d{number}") in done.stderr, done.stderr
    assert "s3://wrong/object: failed: it is an object, and a directory is to be put there" in done.stderr, done.stderr
    assert "the name b'\\xff' is no UTF-8" in done.stderr, done.stderr
    assert "it names a directory, and the task has made a file" in done.stderr, done.stderr
    assert s3.keys("wrong") == ["object"]


def test_a_publication_that_fails_fails_the_run(s3: S3, tmp_path: Path) -> None:
    s3.put("gone", {})
    script = f"mkdir $0; for n in 1 2 3; do echo $n > $0/$n; done; curl -sX DELETE {s3.endpoint}/gone"
    (tmp_path / "tasks").write_text(f"a -b sh -o s3://gone/d/ -a -c '{script}' s3:/gone/d\n")
    done = run(tmp_path, "--local", "tasks")
    assert done.returncode == 1 and "cannot write its output: s3://gone/d" in done.stderr and "no such bucket" in done.stderr, done.stderr


def test_outputs_go_where_a_catalog_says(s3: S3, tmp_path: Path) -> None:
    s3.put("catalog", {})
    (tmp_path / "catalog").write_text("file s3://catalog/x/file\ndirectory s3://catalog/x/directory\nbetween s3://catalog/x/between\n")
    (tmp_path / "Makeflow").write_text(
        "between:\n\techo 1 > between\nfile: between\n\tcat between > file\n"
        "directory: between\n\tmkdir directory && cp between directory/\n"
    )
    arguments = ("--local", "--format", "makeflow", "--catalog", "catalog", "--resume", "--output", "json", "Makeflow")
    for ran, left in ((3, 0), (0, 3)):
        done = run(tmp_path, *arguments)
        assert done.returncode == 0 and f'"ok":{ran}' in done.stdout and f'"skipped":{left}' in done.stdout, (done.stdout, done.stderr)
        assert contents(s3, "catalog", "x/") == {"file": b"1\n", "directory/between": b"1\n"}
    assert sorted(os.listdir(tmp_path)) == ["Makeflow", "catalog"]


def test_nothing_else_lies_in_a_directory_of_a_list_that_grows(s3: S3, tmp_path: Path) -> None:
    s3.put("growing", {})
    lines = (
        "a -b sh -o s3://growing/d -a -c 'mkdir $0; echo 1 > $0/a' s3:/growing/d\n"
        "b -b touch -o s3://growing/d/b -a s3:/growing/d/b\n"
        "c -b sh -i s3://growing/d -o s3://growing/c -a -c 'cat s3:/growing/d/* > s3:/growing/c'\n"
    )
    command = [sys.executable, "-m", "amfs", "run", "-q", "--local", "--format", "tasklist", "-"]
    done = subprocess.run(command, cwd=tmp_path, input=lines, capture_output=True, text=True, timeout=60, check=False)
    words = "of 's3://growing/d/b' and another output one lies in the other"
    assert done.returncode != 0 and words in done.stderr, done.stderr
    assert contents(s3, "growing", "") == {"d/a": b"1\n", "c": b"1\n"}


def test_a_directory_goes_to_a_server_with_one_connection(tmp_path: Path) -> None:
    server = Sftp(tmp_path)
    try:
        top = tmp_path / "there"
        settings = tmp_path / "storage.toml"
        settings.write_text(f'["{server.host}/"]\noptions = {{ key_filename = "{server.key}" }}\n')
        for names in ("a b/c b/old", "a b/c new"):
            script = f"mkdir -p d/b; for n in {names}; do echo $n > d/$n; done"
            (tmp_path / "tasks").write_text(f"#amfs path d {server.host}{top}/d\na -b sh -o d -a -c '{script}'\n")
            done = run(tmp_path, "--local", "--storage", str(settings), "tasks")
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
        found = {str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file() and path.name != RECORD}
        assert found == {"d/a": "a\n", "d/b/c": "b/c\n", "d/new": "new\n"}
    finally:
        server.server.kill()
