"""Real programs, unchanged, in the mount, each with a check of what it made; with two mounts what one node made the other reads."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

#: A limit that only turns a hang into a failure; most of these take a second or two.
PATIENCE_S = 100

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "montage"


def run(*command: str | Path, cwd: Path | None = None, ok: bool = True, env: dict[str, str] | None = None) -> str:
    """Its output. Where the program is missing the test is skipped and says so."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]}")
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, "LC_ALL": "C", **(env or {})}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert not ok or done.returncode == 0, f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-3000:]}"
    return done.stdout


@pytest.fixture
def here(mounts: list[Path]) -> Iterator[Path]:
    """A fresh directory in the first mount. That all of it can be removed is part of each test."""
    path = mounts[0] / f"programs-{os.urandom(4).hex()}"
    path.mkdir()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def there(here: Path, mounts: list[Path]) -> Path:
    """The same directory through the last mount."""
    return mounts[-1] / here.name


def make_tree(top: Path, files: int = 120) -> None:
    """Files of many sizes in directories, links of both kinds, an empty file and directory, a hole, modes and times of all sorts."""
    rng = random.Random(11)
    directories = [top]
    top.mkdir(parents=True)
    for number in range(12):
        directories.append(rng.choice(directories) / f"dir{number}")
        directories[-1].mkdir()
    for number in range(files):
        path = rng.choice(directories) / f"file {number}"
        path.write_bytes(rng.randbytes(rng.choice((0, 1, 100, 4096, 5000, 70_000))))
        path.chmod(rng.choice((0o644, 0o600, 0o755, 0o444)))
        os.utime(path, ns=(10**18 + number, 10**18 + number * 1_000_000_007))
    (top / "file-with-names").write_text("one file")
    os.link(top / "file-with-names", directories[3] / "other name")
    os.symlink("file-with-names", top / "link")
    os.symlink("../nowhere", directories[2] / "dangling")
    with open(top / "hole", "wb") as sparse:
        sparse.seek(3_000_000)
        sparse.write(b"end")


def told(top: Path) -> dict[str, tuple[object, ...]]:
    """All of a tree that copies must keep."""
    found: dict[str, tuple[object, ...]] = {}
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            path = Path(directory, name)
            stats = path.lstat()
            what: object = None
            if path.is_symlink():
                what = os.readlink(path)
            elif path.is_file():
                what = hashlib.sha256(path.read_bytes()).hexdigest(), stats.st_mtime_ns, stats.st_nlink
            found[str(path.relative_to(top))] = (oct(stats.st_mode), what)
    return found


def test_tar_packs_and_unpacks(here: Path, there: Path, tmp_path: Path) -> None:
    make_tree(tmp_path / "tree")
    run("tar", "-C", tmp_path, "--format=posix", "-cf", here / "a.tar", "tree")
    run("tar", "-C", here, "-xpf", there / "a.tar")
    assert told(there / "tree") == told(tmp_path / "tree")
    # Packed again from the mount it is the same archive, but for the order and the times of access.
    run("tar", "-C", there, "-cSf", here / "b.tar", "tree")
    assert run("tar", "--compare", "-C", here, "-f", here / "b.tar") == ""
    assert len(run("tar", "-tf", there / "b.tar").splitlines()) == len(told(tmp_path / "tree")) + 1


def test_git_from_init_to_gc(here: Path, there: Path) -> None:
    work = here / "work"
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main", "-c", "safe.directory=*")
    run(*git, "init", "-q", work)
    make_tree(work / "tree", 60)
    run(*git, "add", "-A", cwd=work)
    run(*git, "commit", "-qm", "one", cwd=work)
    assert run(*git, "status", "--porcelain", cwd=work) == ""
    (work / "tree" / "file-with-names").write_text("changed")
    (work / "new").write_text("new\n")
    assert run(*git, "status", "--porcelain", cwd=work).count("\n") >= 2
    run(*git, "add", "-A", cwd=work)
    run(*git, "commit", "-qm", "two", cwd=work)
    run(*git, "checkout", "-q", "HEAD~1", cwd=work)
    assert not (there / "work" / "new").exists() and (there / "work" / "tree" / "file-with-names").read_text() == "one file"
    run(*git, "checkout", "-q", "main", cwd=work)
    run(*git, "gc", "-q", "--prune=now", "--aggressive", cwd=work)
    run(*git, "fsck", "--full", "--strict", cwd=there / "work")
    run(*git, "clone", "-q", there / "work", here / "clone")
    assert run(*git, "log", "--format=%s", cwd=there / "clone") == "two\none\n"
    assert run(*git, "diff", "--stat", "HEAD~1", cwd=here / "clone")


MAKEFILE = """\
CFLAGS = -O1 -Wall
OBJECTS = main.o $(patsubst %.c,%.o,$(wildcard part*.c))
program: $(OBJECTS) libsum.a
\t$(CC) -o $@ $(OBJECTS) -L. -lsum
libsum.a: sum.o
\tar rcs $@ $^
%.o: %.c sum.h
\t$(CC) $(CFLAGS) -c -o $@ $<
"""


def test_gcc_and_make_build_a_small_tree(here: Path, there: Path) -> None:
    (here / "Makefile").write_text(MAKEFILE)
    (here / "sum.h").write_text("int sum(int, int);\n")
    (here / "sum.c").write_text('#include "sum.h"\nint sum(int a, int b) { return a + b; }\n')
    for number in range(10):
        (here / f"part{number}.c").write_text(f'#include "sum.h"\nint part{number}(int x) {{ return sum(x, {number}); }}\n')
    calls = "".join(f"int part{n}(int); " for n in range(10)), "".join(f"x = part{n}(x); " for n in range(10))
    body = f'int x = 0; {calls[1]} printf("%d\\n", x); return 0;'
    (here / "main.c").write_text(f"#include <stdio.h>\n{calls[0]}\nint main(void) {{ {body} }}\n")
    run("make", "-j2", cwd=here)
    assert run(there / "program") == "45\n"
    assert "up to date" in run("make", cwd=there)
    (there / "part3.c").write_text('#include "sum.h"\nint part3(int x) { return sum(x, 1003); }\n')
    again = run("make", cwd=here)
    assert again.count("-c -o") == 1, again
    assert run(there / "program") == "1045\n"


@pytest.mark.parametrize("journal", ["delete", "truncate", "persist", "wal"])
def test_sqlite_keeps_its_word(here: Path, there: Path, journal: str) -> None:
    path = here / "data.db"
    db = sqlite3.connect(path, isolation_level=None)
    assert db.execute(f"pragma journal_mode={journal}").fetchone()[0] == journal
    db.execute("create table t (id integer primary key, text)")
    db.execute("create index i on t (text)")
    for batch in range(5):
        db.execute("begin")
        db.executemany("insert into t (text) values (?)", [(f"{batch}-{n}" * 20,) for n in range(300)])
        db.execute("rollback" if batch == 2 else "commit")
    other = sqlite3.connect(path, timeout=0.1, isolation_level=None)
    db.execute("begin immediate")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("begin immediate")
    db.execute("delete from t where id % 7 = 0")
    db.execute("commit")
    assert other.execute("pragma integrity_check").fetchone()[0] == "ok"
    rows = other.execute("select count(*) from t").fetchone()[0]
    db.execute("vacuum")
    db.close()
    other.close()
    # Closed here, open there: a database goes from node to node as a file does.
    with sqlite3.connect(there / "data.db") as third:
        assert third.execute("pragma integrity_check").fetchone()[0] == "ok"
        assert third.execute("select count(*) from t").fetchone()[0] == rows == 1200 - 1200 // 7
    third.close()
    if shutil.which("sqlite3"):
        assert run("sqlite3", there / "data.db", "select count(*) from t; pragma integrity_check;") == f"{rows}\nok\n"


def test_a_sqlite_writer_that_is_killed_leaves_a_database_that_is_whole(here: Path) -> None:
    script = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("pragma synchronous=full"); db.execute("pragma cache_size=5")
db.execute("create table t (id integer primary key, text)")
for batch in range(1000000):
    db.execute("begin"); db.executemany("insert into t (text) values (?)", [("x" * 500,)] * 100); db.execute("commit")
    print(batch, flush=True)
"""
    path = here / "killed.db"
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line) >= 8:
                break
        writer.kill()
        told_last = max([8, *(int(line) for line in writer.stdout.read().split())])
    db = sqlite3.connect(path)
    assert db.execute("pragma integrity_check").fetchone()[0] == "ok"
    rows = db.execute("select count(*) from t").fetchone()[0]
    db.close()
    assert rows % 100 == 0 and rows >= 100 * (told_last + 1)


def test_rsync_finds_nothing_to_do_the_second_time(here: Path, there: Path, tmp_path: Path) -> None:
    make_tree(tmp_path / "tree")
    command = ("rsync", "-aHi", f"{tmp_path}/tree/")
    assert run(*command, f"{here}/copy/").count("\n") > 120
    assert run(*command, f"{there}/copy/") == ""
    assert run("rsync", "-aHic", f"{tmp_path}/tree/", f"{here}/copy/") == ""
    assert told(there / "copy") == told(tmp_path / "tree")
    with open(tmp_path / "tree" / "hole", "r+b") as changed:
        changed.write(b"begin")
    os.utime(tmp_path / "tree" / "hole", (10**9, 10**9))  # rsync looks at whole seconds, and this one is not over
    (tmp_path / "tree" / "link").unlink()
    third = run(*command, "--delete", "--inplace", f"{here}/copy/")
    assert "hole" in third and "*deleting" in third and third.count("\n") <= 3
    assert told(there / "copy") == told(tmp_path / "tree")
    # And from the mount to outside.
    run("rsync", "-aH", f"{there}/copy/", f"{tmp_path}/back/")
    assert told(tmp_path / "back") == told(tmp_path / "tree")


def test_a_virtual_environment_works(here: Path, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)  # the bytecode is wanted where the modules are
    run(sys.executable, "-m", "venv", "--without-pip", here / "venv")
    packages = run(here / "venv" / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    module = Path(packages) / "of_the_mount.py"
    module.write_text("import sys\nprint(sys.prefix)\n")
    assert run(here / "venv" / "bin" / "python", "-m", "of_the_mount").strip() == str(here / "venv")
    run(there / "venv" / "bin" / "python", "-m", "compileall", "-q", module.parent)
    assert list((module.parent / "__pycache__").glob("of_the_mount.*.pyc"))


def test_dd_in_all_its_ways(here: Path, there: Path) -> None:
    data = random.Random(3).randbytes(5_000_000)
    (here / "in").write_bytes(data)
    run("dd", f"if={here}/in", f"of={here}/fsync", "bs=64K", "conv=fsync")
    run("dd", f"if={there}/in", f"of={there}/sync", "bs=1M", "oflag=dsync")
    run("dd", f"if={here}/in", f"of={here}/append", "bs=512", "oflag=append", "conv=notrunc")
    for name in ("fsync", "sync", "append"):
        assert (there / name).read_bytes() == data
    run("dd", f"if={here}/in", f"of={there}/fsync", "bs=1000", "skip=2000", "seek=3", "count=70", "conv=notrunc,fdatasync")
    assert (here / "fsync").read_bytes() == data[:3000] + data[2_000_000:2_070_000] + data[73_000:]
    run("dd", "if=/dev/zero", f"of={here}/sparse", "bs=1", "count=0", "seek=5G")
    assert (there / "sparse").stat().st_size == 5 << 30
    run("truncate", "-s", "1000", here / "sparse")
    assert (there / "sparse").read_bytes() == bytes(1000)


def test_sort_with_its_temporary_files_here(here: Path, there: Path) -> None:
    rng = random.Random(5)
    lines = [f"{rng.getrandbits(64):016x} {n}" for n in range(60_000)]
    (here / "in").write_text("\n".join(lines) + "\n")
    run("sort", "-S", "200K", "-T", here, "-o", here / "out", there / "in")
    assert (there / "out").read_text().split("\n")[:-1] == sorted(lines)
    run("sort", "-S", "200K", "-T", there, "-o", here / "in", here / "in")  # in place
    assert (there / "in").read_bytes() == (here / "out").read_bytes()
    assert {path.name for path in there.iterdir()} == {"in", "out"}


def test_cp_find_mv_and_rm_on_trees(here: Path, there: Path, tmp_path: Path) -> None:
    make_tree(tmp_path / "tree")
    original = told(tmp_path / "tree")
    run("cp", "-a", tmp_path / "tree", here / "one")
    run("cp", "-a", there / "one", there / "two")
    assert told(there / "one") == told(here / "two") == original
    run("diff", "-r", "--no-dereference", tmp_path / "tree", here / "two")
    questions = "-type f,-links +1,-type f -size +0,-perm 600,-name file*,-empty,-type d -links 2,-newermt 2002-01-01"
    for question in questions.split(","):
        arguments = question.split()
        found = [sorted(run("find", ".", *arguments, cwd=top).splitlines()) for top in (tmp_path / "tree", here / "one", there / "two")]
        assert found[0] == found[1] == found[2] and found[0], question
    (here / "deep" / "er").mkdir(parents=True)
    run("mv", here / "one", here / "deep" / "er" / "moved")
    assert told(there / "deep" / "er" / "moved") == original
    assert "subdirectory of itself" in run("mv", there / "deep", there / "two", there / "deep" / "er", ok=False)
    run("mv", there / "deep" / "er" / "two", there / "two")
    run("mv", there / "deep" / "er" / "moved", tmp_path / "out")  # to another file system: copied and removed
    assert told(tmp_path / "out") == original
    run("mv", tmp_path / "out", here / "back")
    assert told(there / "back") == original
    run("cp", "--reflink=auto", "--sparse=always", here / "back" / "hole", here / "hole")
    assert (there / "hole").read_bytes() == (tmp_path / "tree" / "hole").read_bytes()
    run("rm", "-rf", here / "back", here / "two", here / "deep")
    assert [path.name for path in there.iterdir()] == ["hole"]


def test_du_and_df_know_what_is_used(here: Path, there: Path) -> None:
    assert int(run("df", "--output=avail", "-k", here).split()[1]) > 10_000
    (here / "big").write_bytes(b"x" * (8 << 20))
    used = int(run("du", "-sk", there).split()[0])
    assert 8 << 10 <= used < 9 << 10
    assert int(run("du", "-s", "--apparent-size", "-B1", there / "big").split()[0]) == 8 << 20


def test_flock_lets_one_in_at_a_time(here: Path) -> None:
    (here / "count").write_text("0")
    script = f"for i in $(seq 15); do flock {here}/lock sh -c 'n=$(cat {here}/count); echo $((n + 1)) > {here}/count'; done"
    workers = [threading.Thread(target=run, args=("sh", "-c", script)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
    assert (here / "count").read_text() == "45\n"
    with open(here / "lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert subprocess.run(["flock", "-n", here / "lock", "true"], check=False, timeout=PATIENCE_S).returncode == 1


def test_numpy_maps_a_file(here: Path, there: Path) -> None:
    numpy = pytest.importorskip("numpy", reason="needs numpy (pip install 'amfs-hpc[examples]')")
    array = numpy.memmap(here / "array", dtype="float64", mode="w+", shape=(300, 1000))
    array[:] = numpy.arange(300_000).reshape(300, 1000)
    array.flush()
    del array
    again = numpy.memmap(there / "array", dtype="float64", mode="r", shape=(300, 1000))
    assert float(again.sum()) == 299_999 * 300_000 / 2
    numpy.save(here / "saved.npy", again)
    mapped = numpy.load(there / "saved.npy", mmap_mode="r+")
    mapped[0, 0] = 17
    mapped.flush()
    assert numpy.load(here / "saved.npy")[0, 0] == 17
    del again, mapped
    with open(here / "array", "r+b") as opened, mmap.mmap(opened.fileno(), 0) as view:
        view[8:16] = bytes(8)
        opened.seek(8)
        assert opened.read(8) == bytes(8)


def test_shell_and_its_tools_do_their_usual_things(here: Path, there: Path) -> None:
    logging = "for i in $(seq 50); do echo line $i >> log; done; sed -i s/line/row/ log; tail -n 3 log | tee end"
    run("sh", "-ec", f"{logging}; mkfifo p; cat p > got & echo through > p; wait", cwd=here)
    assert (there / "end").read_text() == "row 48\nrow 49\nrow 50\n"
    assert (there / "got").read_text() == "through\n"
    parts = "split -l 10 log part.; cat part.* > whole; cmp log whole"
    run("sh", "-ec", f"{parts}; install -m 600 whole safe; ln -sf safe s; ln -f safe hard", cwd=there)
    assert (here / "hard").stat().st_nlink == 2 and (here / "s").read_text() == (there / "log").read_text()
    run("gzip", "-k", here / "log")
    assert run("zcat", there / "log.gz") == (here / "log").read_text()


def test_montage_by_hand_makes_the_same_mosaic(here: Path, tmp_path: Path) -> None:
    pytest.importorskip("numpy", reason="the Montage example needs numpy (pip install 'amfs-hpc[examples]')")
    run(sys.executable, EXAMPLE / "make_sky.py", tmp_path / "sky", "--grid", "2", "--size", "80")
    outside = run(sys.executable, EXAMPLE / "serial.py", tmp_path / "sky", tmp_path / "work", ok=False)
    if "no Montage here" in outside:
        pytest.skip(outside.strip())
    shutil.copytree(tmp_path / "sky", here / "sky")
    run(sys.executable, EXAMPLE / "serial.py", here / "sky", here / "work")
    compared = run(sys.executable, EXAMPLE / "compare.py", tmp_path / "work" / "mosaic.fits", here / "work" / "mosaic.fits")
    assert compared.count("the same pixel by pixel") == 2, compared
    assert sorted(path.name for path in (here / "work").rglob("*")) == sorted(path.name for path in (tmp_path / "work").rglob("*"))
