"""Configuration files of Swift/K, variables of Swift/T: settings used of them, and remarks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amfs.errors import UsageError
from amfs.translate.swift_config import Settings, turbine_ignored, turbine_retries

CONF = """# of a cluster
sites: [local, "other"]
site.local {
    execution { type: "local", URL: "localhost" }
    workDirectory = "/tmp/"${env.USER}"/swift" // where
    app.ALL { executable: "*" }
    app.hello {
        executable: ${env.HOME}/bin/hello
        env: { GREETING: "hi, \\"there\\"", X=1 }
    }
    app.sh
    { executable = "/bin/sh", env.COUNT: 3 }
}
executionRetries: 2
lazyErrors: false
"""
CATALOG = """# site name path
other\thello\t/not/here
localhost\thello\t/bin/hello\tINSTALLED\tINTEL32::LINUX\tENV::GREETING="hi there";GLOBUS::maxwalltime="10"
localhost cat /bin/cat
"""
SITES = """<?xml version="1.0"?>
<config><pool handle="localhost"><execution provider="local"/>
<profile namespace="env" key="PATH_TO"> /data </profile><profile namespace="karajan" key="jobThrottle">0.1</profile></pool></config>
"""


def read(path: Path, *texts: str) -> Settings:
    found = Settings()
    for number, text in enumerate(texts):
        file = path / f"file{number}"
        file.write_text(text)
        found.read(str(file), {"HOME": "/home/me", "USER": "me"})
    return found


def test_swift_conf(tmp_path: Path) -> None:
    found = read(tmp_path, CONF)
    assert (found.retries, found.fail_fast) == (2, True)
    assert found.programs == {"hello": "/home/me/bin/hello", "sh": "/bin/sh"}
    assert found.environment == {"hello": {"GREETING": 'hi, "there"', "X": "1"}, "sh": {"COUNT": "3"}}
    assert len(found.remarks) == 1
    for name in ("sites", "site.local.execution.type", "site.local.workDirectory"):
        assert name in found.remarks[0]


def test_catalog_sites_and_properties(tmp_path: Path) -> None:
    found = read(tmp_path, CATALOG, SITES, "execution.retries=5\nlazy.errors=true\nkeep.x=1\n")
    assert (found.retries, found.fail_fast) == (5, False)
    assert found.programs == {"hello": "/bin/hello", "cat": "/bin/cat"}
    assert found.environment == {"hello": {"GREETING": "hi there"}, "": {"PATH_TO": "/data"}}
    told = "\n".join(found.remarks)
    assert "globus.maxwalltime" in told and "karajan.jobThrottle" in told and "keep.x" in told and "execution.retries" not in told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("execution.retries=two", "file0:1: execution.retries is a number"),
        ("\nlazyErrors: maybe\n", "file0:2: lazy.errors is true or false"),
        ("a {\n b: 1\n", "file0:3: a '}' is missing"),
        ("a: 1\n}\n", "file0:2: a '}' too many"),
        ("one two\n", "has no value"),
        ("= 3", "has no name"),
        ("<a><b></a>", "file0:1: not well-formed XML"),
        ('<!DOCTYPE a [<!ENTITY x "yyyy">]><a>&x;</a>', "entities"),
        ("localhost cat /bin/cat\nlocalhost\n", "file0:2: a line is 'site program path'"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("'}'", "'.'")):
        read(tmp_path, text)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([*'{}=:,[]"#\n $', "app.", "execution.retries", "env", "${X}", "1", "a b c", "//", "<x>"])).map("".join))
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    try:
        read(tmp_path_factory.getbasetemp(), text)
    except UsageError as error:
        assert str(error)


def test_variables_of_swift_t() -> None:
    assert turbine_retries({"TURBINE_APP_RETRIES": "3"}) == 3
    assert turbine_retries({}) is None
    with pytest.raises(UsageError, match="TURBINE_APP_RETRIES"):
        turbine_retries({"TURBINE_APP_RETRIES": "-1"})
    assert "ADLB_SERVERS" in turbine_ignored({"ADLB_SERVERS": "2", "TURBINE_PRINTF_NL": "0"})
    assert turbine_ignored({"TURBINE_PRINTF_NL": "0", "TURBINE_RESIDENT_WORK_WORKERS": "1", "PATH": "/bin"}) == ""


FLAKY = '"-c" "echo x >> $DIR/tries; [ $(wc -l < $DIR/tries) -ge 3 ] && echo $WHO"'


def run(path: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DIR": str(path), **variables}
    command = [sys.executable, "-m", "amfs", "run", "--local", *words]
    return subprocess.run(command, cwd=path, env=environment, capture_output=True, text=True, timeout=60)


def test_a_run_uses_them(tmp_path: Path) -> None:
    (tmp_path / "k.swift").write_text(f'app (file o) f() {{ shell {FLAKY} stdout=@o; }}\nfile o <"o.txt"> = f();\n')
    (tmp_path / "swift.conf").write_text("app.shell { executable: /bin/sh, env.WHO: me }\nexecution.retries: 2\nstaging: direct\n")
    done = run(tmp_path, "k.swift")
    assert done.returncode != 0
    assert "swift.conf beside the script is not read; to use it: --config swift.conf" in done.stderr
    done = run(tmp_path, "--config", "swift.conf", "--retries", "0", "k.swift")  # the command line comes first
    assert done.returncode == 1
    done = run(tmp_path, "--config", "swift.conf", "k.swift")
    assert done.returncode == 0, done.stderr
    assert "without a meaning here: staging" in done.stderr
    assert (tmp_path / "o.txt").read_text() == "me\n"


def test_a_script_of_swift_t_is_retried_as_its_variable_says(tmp_path: Path) -> None:
    (tmp_path / "t.swift").write_text(f'app (file o) f() {{ "sh" {FLAKY} @stdout=o; }}\nfile o<"o.txt"> = f();\n')
    assert run(tmp_path, "t.swift", WHO="you").returncode == 1
    (tmp_path / "tries").unlink()
    done = run(tmp_path, "t.swift", WHO="you", TURBINE_APP_RETRIES="2", ADLB_DEBUG="1")
    assert done.returncode == 0 and "ADLB_DEBUG" in done.stderr
    assert (tmp_path / "o.txt").read_text() == "you\n"


def test_only_scripts_have_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("echo hi\n")
    done = run(tmp_path, "--config", "swift.conf", "list.txt")
    assert done.returncode == 2 and "--config is for runs of Swift scripts" in done.stderr
