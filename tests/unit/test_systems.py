"""Descriptions of batch systems: the shipped ones are right, and what is wrong with one of a user is said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from amfs.errors import SessionError, UsageError
from amfs.provision import systems
from amfs.provision.choice import choose
from amfs.provision.commands import Commands, read_hosts
from amfs.provision.keeper import in_few_lines
from amfs.provision.local import LocalProcesses
from amfs.provision.provisioner import NodeOptions
from amfs.provision.submission import Submission, Wanted
from amfs.vocabulary.job_states import JobEvent

GOOD = 'inside = "JOB"\nhosts = ["hosts"]\nlaunch = ["run", "-n{count}", "{hosts}"]\n'
JOBS = 'submit = ["/bin/sh", "{script}"]\ncancel = ["no-such-delete", "{jobs}"]\n'


@pytest.mark.parametrize("name", systems.SHIPPED)
def test_shipped_systems_can_be_used(name: str) -> None:
    system = systems.load(name)
    assert system.name == name and not system.is_inside({})
    if system.launch:
        words = system.launcher(["n1", "n2"])
        assert "2" in " ".join(words) and any("n1,n2" in word for word in words)
        assert system.is_inside({system.inside: "7"})
    if system.start:
        words = system.starting("lab", 3, "n1", ["node", "a b"], ["--more"])
        assert "--more" in words and ("n1" in words) is system.needs_hosts
        assert words[-2:] == ["node", "a b"] or words[-1].endswith("node 'a b'")
        return
    for time_s in (7200, None):
        words = system.submission("lab", 3, "/s", "/l", time_s, ["--more"])
        assert "--more" in words and any("/s" in word for word in words) and any("/l" in word for word in words)
        assert not any(word.startswith("-") and words[at + 1 :][:1] == [""] for at, word in enumerate(words))
    assert "7" in system.cancelling("lab", ["7"])


#: The output of each system: of a job that was submitted, and of jobs 7 (waits), 8 (runs) and 9 (is over).
PRINTED = {
    "slurm": ("7;cluster\n", "7|PENDING|Resources\n8|RUNNING|None\n9|TIMEOUT|None\n"),
    "pbs": (
        "7.server\n",
        "Job id  Name  User  Time Use S Queue\n7.server  amfs-lab  me  0 Q workq\n8.server  amfs-lab  me  00:01:02 R workq\n"
        "9.server  amfs-lab  me  00:01:02 F workq\n",
    ),
    "lsf": ("Job <7> is submitted to default queue <normal>.\n", "7|PEND|New job is waiting for scheduling;\n8|RUN|\n9|EXIT|\n"),
    "flux": ("7\n", "7|SCHED\n8|RUN\n9|TIMEOUT\n"),
    "htcondor": ("7.0 - 7.0\n", "7, 1, undefined\n8, 2, undefined\n9, 4, undefined\n"),
}


@pytest.mark.parametrize("name", PRINTED)
def test_what_the_systems_print_is_understood(name: str) -> None:
    system, (submitted, queue) = systems.load(name), PRINTED[name]
    found = re.search(system.job_id, submitted)
    assert found is not None and found[1] == "7"
    rows = system.rows(queue)
    assert {job: row.event for job, row in rows.items()} == {"7": JobEvent.WAITS, "8": JobEvent.RUNS, "9": JobEvent.OVER}


def test_the_output_of_each_shipped_system_is_known() -> None:
    assert PRINTED.keys() == {name for name in systems.SHIPPED if systems.load(name).can_submit}


def test_a_file_of_one_s_own(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(GOOD)
    system = systems.load(str(path))
    assert system.launcher(["a", "b"]) == ["run", "-n2", "a,b"]
    assert (system.name, system.copies({})) == ("ours", 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("inside = ", "Invalid value"),
        ('inside = "JOB"\nhosts = ["hosts"]\n', "launch"),
        (GOOD + 'more = "x"\n', "more"),
        (GOOD.replace("{count}", "{number}"), r"'-n\{number\}': no value is named \{number\}; there are \{count\}, \{hosts\}"),
        (GOOD.replace("launch", "lunch"), "there is no key 'lunch'; did you mean 'launch'?"),
        (JOBS.replace("{script}", "{more}/{script}"), r"no value is named \{more\}; .*, \{more\} as a word of its own"),
        (JOBS + 'job_id = "(("\n', r"job_id = '\(\(' is no pattern"),
        (JOBS + 'time = "{hour}"\n', r"'\{hour\}': no value is named"),
        (GOOD.replace('["hosts"]', "[]"), "no words"),
        (GOOD.replace("{hosts}", "{"), "not the description"),
        (GOOD + 'start = ["ssh", "{host}", "{command}"]\n', "stands alone"),
        ('start = ["ssh", "{host}"]\n', "neither"),
        ('start = ["ssh", "{hosts}", "{command}"]\n', "hosts"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        systems.load(str(path))


def test_programs_that_are_not_on_this_host_are_named_before_anything_is_started(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(JOBS + 'state = ["no-such-queue"]\nrow = "(?P<job>a)(?P<state>b)"\n')
    with pytest.raises(SessionError, match="cannot run no-such-queue, no-such-delete: no such command on this host"):
        Submission(systems.load(str(path)), Wanted()).start(None, NodeOptions())


def test_a_home_that_cannot_be_written_to_is_named_before_anything_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(JOBS.replace("no-such-delete", "/bin/true"))
    (tmp_path / ".amfs").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SessionError, match=rf"cannot write to {re.escape(str(tmp_path))}/\.amfs/sessions, where jobs find"):
        Submission(systems.load(str(path)), Wanted()).start(None, NodeOptions())


def test_a_system_that_is_not_there_or_not_around(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml: no such file"):
        systems.load(str(tmp_path / "none.toml"))
    with pytest.raises(UsageError, match=r"no such system; there are command, .*local, .*slurm"):
        systems.load("slrum")
    assert isinstance(choose("1..3", "slurm"), Submission)
    assert isinstance(choose("3", "local"), LocalProcesses)
    for nodes in ("0", "3..2", "x", "1..", "-1"):
        with pytest.raises(UsageError, match="write a number"):
            choose(nodes)
    with pytest.raises(UsageError, match="is for a batch system"):
        choose("1..3")
    with pytest.raises(UsageError, match="are for nodes that --on SYSTEM starts elsewhere"):
        choose("3", "local", Wanted(time_s=60))


def test_a_system_that_only_launches_is_used_within_its_jobs(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(GOOD)
    with pytest.raises(UsageError, match=r"\$JOB is not set"):
        choose(None, str(path))


def test_copies_of_a_command_are_counted() -> None:
    system = systems.load("slurm")
    assert [system.copies({"SLURM_STEP_NUM_TASKS": text}) for text in ("4", "1", "", "x")] == [4, 1, 1, 1]


def test_what_slurm_says_of_its_jobs() -> None:
    rows = systems.load("slurm").rows("7|PENDING|Resources\n8|PENDING|PartitionTimeLimit\n9|TIMEOUT|None\n10|NEW_STATE|None\nslurm_load: x")
    assert {job: row.event for job, row in rows.items()} == {"7": JobEvent.WAITS, "8": JobEvent.WAITS, "9": JobEvent.OVER}
    assert [row.never for row in rows.values()] == [False, True, False]
    assert rows["8"].why == "PartitionTimeLimit: the partition does not allow so much time"
    assert rows["9"].why == "TIMEOUT: its time limit was met"


def test_of_many_jobs_the_same_is_said_once() -> None:
    many = [f"job {number} waits for Priority" for number in range(20, 28)]
    texts = ["job 1 is node 1", many[0], "job 3 waits for Resources", *many[1:], "job 7 is given up: no\n  log", "2 jobs submitted"]
    assert in_few_lines(texts) == [
        "job 1 is node 1", "jobs 20, 21, 22 and 5 more wait for Priority", "job 3 waits for Resources", "job 7 is given up: no\n  log",
        "2 jobs submitted",
    ]  # fmt: skip
    assert in_few_lines(["job 4 is given up: this is so", "job 5 is given up: this is so"]) == ["jobs 4 and 5 are given up: this is so"]
    assert in_few_lines(many[:4]) == ["jobs 20, 21, 22 and 23 wait for Priority"]


def test_how_a_job_is_submitted() -> None:
    system = systems.load("slurm")
    words = system.submission("lab", 1, "/s", "/l", 5400, ["--partition=short", "a b"])
    assert words[0] == "sbatch" and words[-3:] == ["--partition=short", "a b", "/s"] and "--time=1:30:00" in words
    assert not any("time" in word for word in system.submission("lab", 1, "/s", "/l", None, []))
    assert system.cancelling("lab", ["7", "8"]) == ["scancel", "7", "8"]


def test_a_file_of_hosts(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# ours\nn1\n  me@n2.site:4  # fast\n\n[fe80::1%eth0] slots=2\n10.0.0.7\n")
    found = [(place.name, place.slots) for place in read_hosts(str(path))]
    assert found == [("n1", 0), ("me@n2.site", 4), ("[fe80::1%eth0]", 2), ("10.0.0.7", 0)]
    assert [place.name for place in Commands(systems.load("ssh"), str(path)).places(2)] == ["n1", "me@n2.site"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n1\n-oProxyCommand=x\n", ":2: '-oProxyCommand=x' is no host"),
        ("n1 4", "is no host"),
        ("n1 slots=0", "is no host"),
        ("n1; reboot", "is no host"),
        ("n1\nn1:2\n", ":2: n1 is named twice"),
        ("# none\n", "it names no host"),
    ],
)
def test_what_is_wrong_with_a_file_of_hosts_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(said)):
        read_hosts(str(path))


def test_options_that_a_way_does_not_take_are_refused(tmp_path: Path) -> None:
    for on, wanted, said in (
        ("ssh", Wanted(), "needs --hosts FILE"),
        ("ssh", Wanted(hosts="h", at="a"), "--on ssh takes no --at"),
        ("ssh", Wanted(hosts="h", time_s=60), "--on ssh takes no --time"),
        ("kubernetes", Wanted(hosts="h"), "--hosts is not for kubernetes"),
        ("slurm", Wanted(hosts="h"), "--on slurm takes no --hosts"),
        ("command", Wanted(at="a"), "--on command takes no --at"),
        ("dask", Wanted(), "needs --at ADDRESS"),
        ("ray", Wanted(more=("x",)), "--on ray takes no words after --"),
        ("local", Wanted(at="a"), "are for nodes that --on SYSTEM starts elsewhere"),
        (None, Wanted(hosts="h"), "are for nodes that --on SYSTEM starts elsewhere"),
    ):
        with pytest.raises(UsageError, match=said):
            choose(None, on, wanted)
    with pytest.raises(UsageError, match=f"--hosts {tmp_path}/none: No such file"):
        choose(None, "ssh", Wanted(hosts=f"{tmp_path}/none")).start(None, NodeOptions())


SUBMIT = ("submit=sub --out={log} {script}", "cancel=del {jobs}")


def test_a_system_of_words() -> None:
    system = systems.of_words([*SUBMIT, "state=queue {session}", "running=R active", "time={total}"])
    assert system.submission("lab", 1, "/a b", "/l", 5, ()) == ["sub", "--out=/l", "/a b"]
    rows = system.rows("7 waiting for more\n8 active\n9 over\nx\n10 other\n")
    assert {job: row.event for job, row in rows.items()} == {"7": JobEvent.WAITS, "8": JobEvent.RUNS, "9": JobEvent.OVER}
    assert rows["7"].why == "for more" and system.name == "command"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say at least submit="),
        (("--partition=x",), "'--partition=x': write KEY=VALUE"),
        (SUBMIT[:1], "'submit' needs 'cancel'"),
        (("submit=sub", SUBMIT[1]), "does not name {script}"),
        ((SUBMIT[0].replace("{log}", "{lug}"), SUBMIT[1]), "lug"),
        (("submit='sub", SUBMIT[1]), "No closing quotation"),
    ],
)
def test_what_is_wrong_with_words_is_said(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        systems.of_words(words)
