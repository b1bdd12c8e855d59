"""Descriptions of batch systems: the shipped ones are right, and what is wrong with one of a user is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from amfs.errors import UsageError
from amfs.provision import systems
from amfs.provision.choice import choose
from amfs.provision.local import LocalProcesses

GOOD = 'inside = "JOB"\nhosts = ["hosts"]\nlaunch = ["run", "-n{count}", "{hosts}"]\n'


@pytest.mark.parametrize("name", systems.SHIPPED)
def test_shipped_systems_can_be_used(name: str) -> None:
    system = systems.load(name)
    words = system.launcher(["n1", "n2"])
    assert "2" in " ".join(words) and any("n1,n2" in word for word in words)
    assert system.name == name and not system.is_inside({}) and system.is_inside({system.inside: "7"})


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
        (GOOD.replace("{count}", "{number}"), "number"),
        (GOOD.replace('["hosts"]', "[]"), "no words"),
        (GOOD.replace("{hosts}", "{"), "not the description"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        systems.load(str(path))


def test_a_system_that_is_not_there_or_not_around() -> None:
    with pytest.raises(UsageError, match=r"no such system; there are local, .*slurm"):
        systems.load("slrum")
    with pytest.raises(UsageError, match="SLURM_JOB_ID is not set"):
        choose(None, "slurm")
    assert isinstance(choose(3, "local"), LocalProcesses)


def test_copies_of_a_command_are_counted() -> None:
    system = systems.load("slurm")
    assert [system.copies({"SLURM_STEP_NUM_TASKS": text}) for text in ("4", "1", "", "x")] == [4, 1, 1, 1]
