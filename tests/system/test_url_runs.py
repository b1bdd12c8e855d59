"""Runs whose inputs come from storage at URLs and whose outputs go there: real S3, a real web server, one node and several."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import commands
import pytest
from fs_session import running
from servers import S3, Sftp, Web, free_port, s3_in_environment
from waiting import until

LIST = """\
a -b cat -i s3://{bucket}/in/first s3://{bucket}/in/second -stdout middle -a s3://{bucket}/in/first s3://{bucket}/in/second
b -b cp -i middle -o s3://{bucket}/out/copy -a middle s3://{bucket}/out/copy
c -b wc -i middle -stdout s3://{bucket}/out/count -a -c middle
"""


s3 = pytest.fixture(scope="module", name="s3")(s3_in_environment)


def run(place: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return commands.run("run", "-q", *arguments, cwd=place, env=environment)


def listed(place: Path, s3: S3, bucket: str) -> str:
    s3.put(bucket, {"in/first": b"one\n", "in/second": b"two\n"})
    (place / "tasks").write_text(LIST.format(bucket=bucket))
    return "tasks"


def test_a_run_reads_and_writes_objects(s3: S3, tmp_path: Path) -> None:
    done = run(tmp_path, "--local", listed(tmp_path, s3, "alone"))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert s3.content("alone", "out/copy") == b"one\ntwo\n" and s3.content("alone", "out/count") == b"8 middle\n"
    assert os.listdir(tmp_path) == ["tasks"], "nothing lies here under a name like s3:"


def test_nodes_of_a_session_are_told_how_to_reach_them(s3: S3, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in s3.environment:
            patch.delenv(name)  # the nodes do not have it
        with running(3, "--replicas", "1"):
            done = run(tmp_path, listed(tmp_path, s3, "nodes"), **s3.environment)
            (tmp_path / "named").write_text("#amfs path here s3://nodes/in/first\na -b cat -i here -stdout named.out -a here\n")
            named = run(tmp_path, "named", **s3.environment)
    assert (named.returncode, named.stderr) == (0, ""), named.stderr
    assert (tmp_path / "named.out").read_bytes() == b"one\n"
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert s3.content("nodes", "out/copy") == b"one\ntwo\n" and s3.content("nodes", "out/count") == b"8 middle\n"


def test_a_resumed_run_looks_at_objects(s3: S3, tmp_path: Path) -> None:
    tasks = listed(tmp_path, s3, "again")
    assert run(tmp_path, "--local", tasks).returncode == 0
    done = run(tmp_path, "--local", "--resume", "--output", "json", tasks)
    assert done.returncode == 0 and '"ok":0,"failed":0,"upstream_failed":0,"skipped":3' in done.stdout, done.stdout
    s3.client.put_object(Bucket="again", Key="in/second", Body=b"2\n")
    assert run(tmp_path, "--local", "--resume", tasks).returncode == 0
    assert s3.content("again", "out/copy") == b"one\n2\n"
    s3.client.delete_object(Bucket="again", Key="out/count")
    assert run(tmp_path, "--local", "--resume", tasks).returncode == 0
    assert s3.content("again", "out/count") == b"6 middle\n"


def test_faults_are_told_before_anything_runs(s3: S3, tmp_path: Path) -> None:
    s3.put("faults", {})
    faults = {
        "a -b touch -i s3://faults/none -o made -a made": "input 's3://faults/none' of task a does not exist",
        "a -b touch -o made s3://nowhere/x -a made": "output 's3://nowhere/x' cannot be written: s3://nowhere/: no such bucket",
        "a -b touch -o made http://127.0.0.1:1/x -a made": "amfs writes to no web server",
    }
    for line, words in faults.items():
        (tmp_path / "tasks").write_text(line + "\n")
        done = run(tmp_path, "--local", "tasks")
        assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert not (tmp_path / "made").exists()
    s3.put("below", {"in/a": b"", "in/b/c": b"", "odd/k": b"", "odd/k/l": b""})
    faulty = {
        "a -b ls -i s3://below/none/ -o made": "input 's3://below/none' of task a does not exist",
        "b -b ls -i s3://below/in/ s3://below/in/a -o m2": "input 's3://below/in/a' lies in 's3://below/in', which is an input, too",
        "c -b ls -i s3://below/in/ -o s3://below/in/n": "output 's3://below/in/n' lies in 's3://below/in', which is an input, too",
        "d -b touch -o here -a here": "output 'here' at s3://below/in/d lies in 's3://below/in', which is an input, too",
        "e -b mkdir -o s3://below/ -a s3:/below": "output 's3://below' is all of a bucket or server",
        "f -b touch -o s3://below/o -a s3:/below/o": "",
        "g -b touch -o there -a there": "output 'there' at s3://below/o goes to the same place as output 's3://below/o'",
        "h -b touch -o s3://below/o/in -a s3:/below/o": "output 's3://below/o/in' lies in 's3://below/o', which is an output, too",
        "u -b touch -unstaged -o s3://below/u -a s3:/below/u": "task u: runs without a sandbox",
        "i -b cat -i s3://below/in/b/c -o m3 -a s3:/below/in/b/c": "lies in 's3://below/in', which is an input, too",
        "j -b cat -i s3://below/odd/k -o s3://below/odd/ -a s3:/below/in/b/c": "'s3://below/odd/k' lies in 's3://below/odd', where output",
    }
    paths = "#amfs path here s3://below/in/d\n#amfs path there s3://below/o"
    (tmp_path / "tasks").write_text("\n".join([paths, *faulty, ""]))
    faulty = {line: words for line, words in faulty.items() if words}
    done = run(tmp_path, "--local", "tasks")
    assert done.returncode == 2 and done.stderr.count("\n") == len(faulty), done.stderr
    assert all(words in line for words, line in zip(faulty.values(), done.stderr.splitlines(), strict=True)), done.stderr
    (tmp_path / "tasks").write_text("a -b ls -i s3://below/odd/ -o made\n")
    done = run(tmp_path, "--local", "tasks")
    words = "s3://below/odd/k: failed: it is an object, and others lie below it as in a directory"
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr
    (tmp_path / "tasks").write_text("a -b touch -i s3://faults/none -o made -a made\n")
    done = run(tmp_path, "--local", "tasks", AWS_ENDPOINT_URL=f"http://127.0.0.1:{free_port()}")
    words = "tasks:1: input 's3://faults/none' cannot be used: cannot be reached: Connection refused\n"
    assert done.returncode == 2 and words in done.stderr, done.stderr
    (tmp_path / "tasks").write_text(
        "#amfs path x nosuch://x/y\n"
        "a -b cat -i x s3://nowhere/1 s3://nowhere/2 -o made\n"
        "b -b nosuch -i s3://faults/none s3://below/in -o m2\n"
    )
    done = run(tmp_path, "--local", "tasks")
    assert done.returncode == 2 and done.stderr.splitlines() == [
        "amfs: tasks:2: input 'x' at nosuch://x/y cannot be used: no storage is known for nosuch://; URLs begin with s3, gs, az, https, "
        "http, sftp, webhdfs, hdfs, chirp, or what fsspec knows",
        "amfs: tasks:2: input 's3://nowhere/1' cannot be used: no such bucket (and 1 more there)",
        "amfs: tasks:3: input 's3://faults/none' of task b does not exist, and no task makes it",
        f"amfs: tasks:3: program 'nosuch' of task b was not found in {tmp_path} nor on PATH",
    ], done.stderr


TREE = """\
#amfs path here s3://{bucket}/in/
a -b sh -i here -stdout names -a -c 'cd here && find . | sort'
b -b sh -i here -stdout all -a -c 'cat here/b/* here/a'
c -b find -i s3://{bucket}/in/ -stdout below -a s3:/{bucket}/in/ -type f
"""


def test_all_that_lies_below_a_url_is_a_directory_of_tasks(s3: S3, tmp_path: Path) -> None:
    s3.put("tree", {"in/": b"", "in/a": b"1\n", "in/b/c": b"2\n", "in/b/%2F +": b"3\n", "in/none/": b"", "index": b"no\n"})
    (tmp_path / "tasks").write_text(TREE.format(bucket="tree"))
    with running(2):
        done = run(tmp_path, "tasks")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert (tmp_path / "names").read_text().split("\n") == [".", "./a", "./b", "./b/%2F +", "./b/c", "./none", ""]
        assert (tmp_path / "all").read_bytes() == b"3\n2\n1\n"
        assert len((tmp_path / "below").read_text().splitlines()) == 3
        done = run(tmp_path, "--resume", "--output", "json", "tasks")
        assert '"ok":0,"failed":0,"upstream_failed":0,"skipped":3' in done.stdout, done.stdout
        s3.client.put_object(Bucket="tree", Key="in/b/d", Body=b"4\n")  # one more object
        assert run(tmp_path, "--resume", "tasks").returncode == 0
        assert (tmp_path / "all").read_bytes() == b"3\n2\n4\n1\n" and len((tmp_path / "below").read_text().splitlines()) == 4


def test_a_directory_stays_in_memory_while_files_are_spilled(s3: S3, tmp_path: Path) -> None:
    s3.put("once", {f"in/{number:02}": bytes(100_000) for number in range(20)})
    tasks = [f"t{n} -b sh -i here -o o{n} -a -c 'cat here/* | wc -c; head -c 500000 /dev/zero > o{n}'\n" for n in range(12)]
    outputs = " ".join(f"o{n}" for n in range(12))
    tasks.append(f"u -b sh -i here {outputs} -stdout sum -a -c 'cat here/* {outputs} | wc -c'\n")
    (tmp_path / "tasks").write_text("#amfs path here s3://once/in/\n" + "".join(tasks))
    done = run(tmp_path, "--local", "--store-limit", "6M", "--spill", str(tmp_path), "--output", "json", "tasks")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sum").read_text().strip() == str(20 * 100_000 + 12 * 500_000)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["spilled_bytes"] > 0, told


def test_a_directory_that_a_task_has_changed_is_brought_again(s3: S3, tmp_path: Path) -> None:
    s3.put("changed", {"in/a": b"as it was\n"})
    script = f"cat here/a > o; [ -e {tmp_path}/mark ] || {{ touch {tmp_path}/mark; rm here/a; echo new > here/a; }}"
    line = f"t -b sh -retries %d -i here -o o -a -c '{script}'\n"
    (tmp_path / "tasks").write_text("#amfs path here s3://changed/in/\n" + line % 0)
    done = run(tmp_path, "--local", "tasks")
    assert done.returncode == 1 and "changed its input: here" in done.stderr, done.stderr
    (tmp_path / "mark").unlink()
    (tmp_path / "tasks").write_text("#amfs path here s3://changed/in/\n" + line % 1)
    done = run(tmp_path, "--local", "tasks")
    assert done.returncode == 0 and (tmp_path / "o").read_bytes() == b"as it was\n", done.stderr


def test_nothing_is_put_into_a_directory_that_tasks_read(s3: S3, tmp_path: Path) -> None:
    """A list that is still growing may name later what lies in one."""
    s3.put("growing", {"in/a": b"1\n", "in/b": b"2\n"})
    command = [sys.executable, "-m", "amfs", "run", "-q", "--local", "--format", "tasklist", "-"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(f"a -b sh -i s3://growing/in/ -stdout one -a -c 'cat s3:/growing/in/b; echo > {tmp_path}/seen'\n")
        process.stdin.flush()
        until((tmp_path / "seen").exists)  # outputs come when the list has ended
        process.stdin.write("b -b cat -i s3://growing/in/a -stdout two -a s3://growing/in/a\n")
        process.stdin.close()
        told = process.stderr.read()
    assert process.returncode == 1 and "s3://growing/in/a: lies in a directory that is an input, too" in told, told
    assert (tmp_path / "one").read_bytes() == b"2\n"


def test_a_directory_of_other_servers(tmp_path: Path) -> None:
    web, sftp = Web(tmp_path), Sftp(tmp_path)
    try:
        for name in ("x y", "deep/z"):
            (web.root / "top" / name).parent.mkdir(parents=True, exist_ok=True)
            (web.root / "top" / name).write_text(f"{name}\n")
        settings = tmp_path / "storage.toml"
        settings.write_text(f'["{sftp.host}/"]\noptions = {{ key_filename = "{sftp.key}" }}\n')
        (tmp_path / "tasks").write_text(
            f"#amfs path one {web.url}/top/\n#amfs path two {sftp.host}{web.root}/top\n"
            "a -b sh -i one two -stdout out -a -c 'diff -r one/ two/ && find one/ two/ -type f | sort'\n"
        )
        done = run(tmp_path, "--local", "--storage", str(settings), "tasks")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert (tmp_path / "out").read_text().split("\n") == ["one/deep/z", "one/x y", "two/deep/z", "two/x y", ""]
    finally:
        web.server.kill()
        sftp.server.kill()


def test_a_publication_that_fails_fails_the_run(tmp_path: Path) -> None:
    server = S3()
    try:
        server.put("gone", {})
        line = f"a -b sh -o s3://gone/out -a -c 'kill -9 -{server.server.group}; echo done > s3:/gone/out'\n"
        (tmp_path / "tasks").write_text(line)
        done = run(tmp_path, "--local", "tasks", **server.environment)
        assert done.returncode == 1 and "s3://gone/out: cannot be reached" in done.stderr, done.stderr
    finally:
        server.server.kill()


def test_a_catalog_says_at_which_url_a_file_is(s3: S3, tmp_path: Path) -> None:
    web = Web(tmp_path)
    try:
        (web.root / "a file").write_bytes(b"web\n")
        s3.put("catalog", {"some/key": b"s3\n"})
        (tmp_path / "tasks").write_text(
            f"#amfs path here s3://catalog/some/key\n#amfs path there {web.url}/a%20file\n"
            "a -b cat -i here there -stdout out -a here there\n"
        )
        done = run(tmp_path, "--local", "tasks")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert (tmp_path / "out").read_bytes() == b"s3\nweb\n"
    finally:
        web.server.kill()


def test_a_storage_with_one_connection_is_asked_by_one_thread(tmp_path: Path) -> None:
    server = Sftp(tmp_path)
    try:
        (tmp_path / "in").mkdir()
        for number in range(20):
            (tmp_path / "in" / str(number)).write_bytes(os.urandom(300_000))
        top = f"{server.host}{tmp_path}"
        (tmp_path / "tasks").write_text(
            "".join(f"t{n} -b cp -i {top}/in/{n} -o {top}/out/{n} -a {top}/in/{n} {top}/out/{n}\n" for n in range(20))
        )
        settings = tmp_path / "storage.toml"
        settings.write_text(f'["{server.host}/"]\noptions = {{ key_filename = "{server.key}" }}\n')
        done = run(tmp_path, "--local", "--storage", str(settings), "tasks")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        for number in range(20):
            assert (tmp_path / "out" / str(number)).read_bytes() == (tmp_path / "in" / str(number)).read_bytes()
    finally:
        server.server.kill()


def test_keys_are_in_no_journal_or_trace(s3: S3, tmp_path: Path) -> None:
    secret = "a-key-that-nobody-sees"
    tasks = listed(tmp_path, s3, "secret")
    settings = tmp_path / "storage.toml"
    settings.write_text(f'["s3://"]\nendpoint = "{s3.endpoint}"\naccess_key_id = "k"\nsecret_access_key = "{secret}"\n')
    settings.chmod(0o600)
    done = run(tmp_path, "--local", "--storage", str(settings), "--journal", "journal", "--trace", "trace", tasks)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    for place in (tmp_path, Path(os.environ["XDG_STATE_HOME"])):
        for path in place.rglob("*"):
            if path.is_file() and path != settings:
                assert secret.encode() not in path.read_bytes(), path


PEGASUS = """\
pegasus: "5.0"
name: replicas
replicaCatalog:
  replicas:
    - {lfn: one, pfns: [{site: s3, pfn: "s3://replicas/key one"}]}
transformationCatalog:
  transformations:
    - {name: cat, sites: [{name: local, pfn: /bin/cat, type: installed}]}
jobs:
  - type: job
    id: A
    name: cat
    arguments: [one, two]
    stdout: out
    uses:
      - {lfn: one, type: input}
      - {lfn: two, type: input}
      - {lfn: out, type: output, stageOut: true}
"""


def test_replica_catalogs_of_pegasus_have_urls(s3: S3, tmp_path: Path) -> None:
    s3.put("replicas", {"key one": b"1\n", "two": b"2\n"})
    (tmp_path / "workflow.yml").write_text(PEGASUS)
    (tmp_path / "rc.txt").write_text('two s3://replicas/two site="s3"\n')
    (tmp_path / "pegasus.properties").write_text("pegasus.catalog.replica=File\npegasus.catalog.replica.file=rc.txt\n")
    done = run(tmp_path, "--local", "workflow.yml")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert (tmp_path / "out").read_bytes() == b"1\n2\n"


def test_a_makeflow_has_inputs_where_a_catalog_says(s3: S3, tmp_path: Path) -> None:
    s3.put("makeflow", {"a/key": b"key\n"})
    (tmp_path / "there").write_bytes(b"there\n")
    (tmp_path / "Makeflow").write_text("out: one two\n\tcat one two > out\n")
    (tmp_path / "catalog").write_text('# inputs\none s3://makeflow/a/key site="s3"\ntwo there\n')
    done = run(tmp_path, "--local", "--format", "makeflow", "--catalog", "catalog", "Makeflow")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert (tmp_path / "out").read_bytes() == b"key\nthere\n"
    for text, words in (("one\n", "catalog:1: a line of a catalog is NAME PLACE"), ("one s3://makeflow/none\n", "nor is it at s3://makeflow/none")):
        (tmp_path / "catalog").write_text(text)
        done = run(tmp_path, "--local", "--format", "makeflow", "--catalog", "catalog", "Makeflow")
        assert done.returncode == 2 and words in done.stderr, done.stderr
