"""Swift scripts as people run them."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import amfs as amfs_package
from amfs.scripts.api import run_program
from amfs.scripts.program import read_program

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SWEEP = """
import io; import files; import sys;
app (file o) simulate(int i, int k) { "sh" "-c" "echo $(( $0 * $1 ))" i k @stdout=o; }
app (file o) total(file i[]) { "sh" "-c" "cat \\"$@\\" | awk '{ s += $1 } END { print s }'" "sh" i @stdout=o; }
int k = string2int(argv("k", "2"));
file parts[];
foreach i in [1:10] { parts[i] = simulate(i, k); }
file all<"out/total.txt"> = total(parts);
printf("total: %s", trim(read(all)));
"""


def test_a_sweep(amfs: Run, tmp_path: Path) -> None:
    (tmp_path / "sweep.swift").write_text(SWEEP)
    ended = amfs("run", "--local", "sweep.swift", "--", "-k=3")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "total: 165\n"
    assert (tmp_path / "out" / "total.txt").read_text() == "165\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "sweep.swift"], "files between tasks stay in memory"


def test_apps_without_outputs_beside_a_shared_input(amfs: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("here\n")
    (tmp_path / "x.swift").write_text('app f(file i) { "grep" "-q" "here" i; }\napp g() { "true"; }\nf(input("in.txt"));\ng();\n')
    ended = amfs("run", "--local", "x.swift")
    assert ended.returncode == 0, ended.stderr


def test_mistakes_stop_it_before_anything_runs(amfs: Run, tmp_path: Path) -> None:
    (tmp_path / "x.swift").write_text('app (file o) f() { "touch" o; }\nfile a<"made"> = f();\nint x = "text";\ntrace(unknown(x));\n')
    ended = amfs("run", "--local", "x.swift")
    assert ended.returncode == 2
    assert "x.swift:3" in ended.stderr and "x.swift:4" in ended.stderr and "^" in ended.stderr
    assert not (tmp_path / "made").exists()


def test_a_failed_task_is_named_by_its_call_path(amfs: Run, tmp_path: Path) -> None:
    text = """app (file o) work(int i) { "sh" "-c" "test $0 != 2 && echo ok" i @stdout=o; }
foreach i in [1:3] {
  file f<"f%i" % i> = work(i);
}
"""
    (tmp_path / "x.swift").write_text(text)
    ended = amfs("run", "--local", "x.swift")
    assert ended.returncode == 1
    assert "2[1]/work:3" in ended.stderr
    assert (tmp_path / "f1").exists() and (tmp_path / "f3").exists() and not (tmp_path / "f2").exists()


def test_a_failed_assertion_stops_the_run(amfs: Run, tmp_path: Path) -> None:
    (tmp_path / "x.swift").write_text('import assert;\nint x = 1;\nassert(x == 2, "x is not 2");\n')
    ended = amfs("run", "--local", "x.swift")
    assert ended.returncode == 1
    assert "x is not 2" in ended.stderr and "x.swift:3" in ended.stderr and "Traceback" not in ended.stderr


SIZES = """
app (file o) make(int i) { "head" "-c" 1000 "/dev/zero" @stdout=o; }
app (file o) size(file f) { "wc" "-c" f @stdout=o; }
app (file o) look(string store, int total) { "sh" "-c" ("find " + store + " -type f -size 1000c | wc -l") @stdout=o; }
int sizes[];
foreach i in [0:99] { sizes[i] = toint(split(read(size(make(i))), " ")[0]); }
file left<"left.txt"> = look(argv("store"), sum(sizes));
"""


def test_files_that_nothing_names_any_more_leave_the_memory(amfs: Run, tmp_path: Path) -> None:
    (tmp_path / "x.swift").write_text("import files; import string; import stats; import sys;" + SIZES)
    (tmp_path / "store").mkdir()
    ended = amfs("run", "--local", "--store", "store", "x.swift", "--", f"-store={tmp_path}/store")
    assert ended.returncode == 0, ended.stderr
    assert int((tmp_path / "left.txt").read_text()) < 10


def test_a_deadlock_is_an_error_and_no_hang(amfs: Run, tmp_path: Path) -> None:
    (tmp_path / "x.swift").write_text("int A[];\nint n = count(A); (int o) count(int B[]) { o = size(B); }\nA[n] = 1;\ntrace(n);\n")
    ended = amfs("run", "--local", "x.swift")
    assert ended.returncode == 1
    assert "stuck" in ended.stderr and "A is never closed" in ended.stderr


def test_python_functions_keep_what_they_know(amfs: Run, tmp_path: Path) -> None:
    text = """import python;
string a = python_persist("n = 41", "n") =>
string b = python_persist("n = n + 1", "n") =>
trace(a, b, python("x = 2 ** 10", "x"));
"""
    (tmp_path / "x.swift").write_text(text)
    ended = amfs("run", "--local", "x.swift")
    assert (ended.returncode, ended.stdout) == (0, "trace: 41,42,1024\n"), ended.stderr


def test_python_functions_import_the_users_modules(amfs: Run, tmp_path: Path) -> None:
    """Also one that is called as a module of amfs is."""
    (tmp_path / "world.py").write_text("size = 12742\n")
    (tmp_path / "x.swift").write_text('import python;\ntrace(python("import world", "world.size"));\n')
    ended = amfs("run", "--local", "x.swift")
    assert (ended.returncode, ended.stdout) == (0, "trace: 12742\n"), ended.stderr


def test_a_static_script_is_translated_and_drawn(amfs: Run, tmp_path: Path) -> None:
    (tmp_path / "sweep.swift").write_text(SWEEP.replace("printf(", "// printf("))
    tasks = amfs("translate", "--to", "tasklist", "sweep.swift", "--", "-k=7")
    assert tasks.returncode == 0, tasks.stderr
    assert tasks.stdout.count("-b sh") == 11 and " 7 " in tasks.stdout.replace("'", " ")
    (tmp_path / "list.txt").write_text(tasks.stdout)
    ended = amfs("run", "--local", "list.txt")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "out" / "total.txt").read_text() == "385\n"
    assert "11" in amfs("info", "sweep.swift").stdout
    assert amfs("graph", "sweep.swift").stdout.startswith("<svg")


def test_translation_says_which_expression_needs_a_run(amfs: Run, tmp_path: Path) -> None:
    (tmp_path / "sweep.swift").write_text(SWEEP)
    ended = amfs("translate", "--to", "tasklist", "sweep.swift")
    assert ended.returncode == 2
    assert "sweep.swift:9:26: this needs a run" in ended.stderr and "out/total.txt" in ended.stderr


def test_arguments_are_for_scripts(amfs: Run, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("echo 1\n")
    assert amfs("run", "list.txt", "--", "-n=1").returncode == 2
    assert amfs("info", "list.txt", "--", "-n=1").returncode == 2


def ran(place: Path) -> Counter[str]:
    log = place / "log"
    return Counter(log.read_text().split()) if log.exists() else Counter()


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_resume_does_only_what_is_left(blow: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = tmp_path / "here"
    place.mkdir()
    (tmp_path / "store").mkdir()
    text = f"""
app (file o) first(int i) {{ "sh" "-c" "sleep 0.1; echo p$0 >> {place}/log; echo $0" i @stdout=o; }}
app (file o) second(file i, int n) {{ "sh" "-c" "sleep 0.1; echo c$1 >> {place}/log; cat $0" i n @stdout=o; }}
import files;
file A[];
foreach i in [0:9] {{
  file f = first(i);
  A[i] = second(f, string2int(trim(read(f))));
}}
app (file o) all(file A[]) {{ "cat" A @stdout=o; }}
file sum<"sum"> = all(A);
"""
    (place / "x.swift").write_text(text)
    command = [sys.executable, "-m", "amfs", "run", "--local", "-q", "--store", "../store", "x.swift"]
    process = subprocess.Popen(command, cwd=place, stderr=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + 60
    while sum(ran(place).values()) < 7:
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(blow)
    process.wait(timeout=60)
    time.sleep(0.3)  # tasks that ran are killed now
    before = ran(place)
    ended = subprocess.run([*command, "--resume"], cwd=place, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    after = ran(place)
    assert (place / "sum").read_text().split() == [str(i) for i in range(10)]
    assert set(after) == {f"{kind}{i}" for kind in "pc" for i in range(10)}
    again = sum(after.values()) - 20
    assert again <= 4, f"{before} {after}"  # tasks that ran at the blow may run again, and makers of files lost with it


def test_a_program_in_a_session_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.swift").write_text(SWEEP)
    shown: list[str] = []
    with amfs_package.Session(slots=2, base=tmp_path) as session:
        failed = run_program(read_program("sweep.swift"), session, show=lambda text, error: shown.append(text))
        assert not failed
    assert "".join(shown) == "total: 110\n"
    shutil.rmtree(tmp_path / "out")


def test_an_array_that_an_app_returns_is_what_the_mapper_finds(amfs: Run, tmp_path: Path) -> None:
    text = """type file;
app (file out[]) split(int n) {
  sh "-c" "for i in $(seq $0); do echo part $i > part-$i.txt; done; echo junk > junk" n;
}
app (file o) cat(file a[]) { cat @filenames(a) stdout=@o; }
file parts[] <filesys_mapper; prefix="part-", suffix=".txt">;
parts = split(3);
foreach p, i in parts { tracef("%i %s\\n", i, @filename(p)); }
file all <"all.out"> = cat(parts);
"""
    (tmp_path / "x.swift").write_text(text)
    ended = amfs("run", "--local", "x.swift")
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == ["0 part-1.txt", "1 part-2.txt", "2 part-3.txt"]
    assert (tmp_path / "all.out").read_text() == "part 1\npart 2\npart 3\n"
    assert not (tmp_path / "junk").exists()
    ended = amfs("translate", "--to", "tasklist", "x.swift")
    assert ended.returncode == 2 and "x.swift:7" in ended.stderr and "needs a run" in ended.stderr


def test_an_interrupt_ends_what_the_script_itself_has_started(tmp_path: Path) -> None:
    (tmp_path / "x.swift").write_text(
        'import sys;\n(string out, int code) = system(["sh", "-c", "echo $$ > pid; exec sleep 100"]);\ntrace(code);\n'
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "amfs", "run", "--local", "x.swift"], cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True
    )
    pid = tmp_path / "pid"
    end = time.monotonic() + 60
    while not pid.exists() or not pid.read_text():
        assert time.monotonic() < end and process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert process.stderr is not None
    process.stderr.close()
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_an_unknown_program_is_told_before_anything_runs(amfs: Run, tmp_path: Path) -> None:
    apps = "".join(f'app (file o) f{n}(file i) {{ "no-such-program-{n}" i o; }}\n' for n in range(4))
    text = 'app (file o) first() { "touch" o; }\n' + apps + '(file o) unused(file i) { o = f3(i); }\n'
    text += 'file a<"a.txt"> = first();\nfile b = f0(a);\nif (filename(a) == "x") { file c = f1(a); trace(filename(c)); }\n'
    (tmp_path / "x.swift").write_text(text)
    ended = amfs("run", "--local", "x.swift")
    assert ended.returncode == 1
    assert "x.swift:2:27: the program 'no-such-program-0' of the app f0 was not found" in ended.stderr
    assert not any(f"no-such-program-{n}" in ended.stderr for n in (1, 2, 3))
    assert not (tmp_path / "a.txt").exists()
