"""The documents are true: their examples run, their links lead somewhere, the pages that tools make are fresh."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from daily import daily

from amfs.net.records import load
from amfs.provision import daemon

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from run_page import blocks, run_block

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = [page for page in PAGES if blocks(page)]
OTHERS = [page for page in RUN if page.name != "benchmarks.md"]


@pytest.mark.slow
@pytest.mark.parametrize("page", daily(RUN, *OTHERS), ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_in_the_documents_run(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The blocks of a page run one after the other in one directory, as a reader would type them."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    sessions = tempfile.mkdtemp(prefix="amfs-docs-", dir="/tmp")  # short: sockets lie in it

    def end() -> None:  # of a page that failed half-way, too
        left = [load(file) for file in Path(sessions).glob("*/session.json")]
        daemon.stop([(entry.pid, entry.started) for session in left for entry in session.nodes])
        shutil.rmtree(sessions, ignore_errors=True)

    request.addfinalizer(end)
    env["AMFS_RUN_DIR"] = sessions
    work = tmp_path / "work"
    work.mkdir()
    for wanted, language, text in blocks(page):
        assert not run_block(wanted, language, text, python=sys.executable, work=work, env=env)


def test_links_between_documents_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:", target):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}, which does not exist"


def test_the_glossary_says_where_each_term_lives() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+) \| `([^`]+)` \|$", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 50
    for term, _, where in rows:
        assert (ROOT / where).is_file(), f"{term}: no file {where}"


def test_documents_name_no_place_of_ours() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w.])/(?:work|root)/", text), f"{page.relative_to(ROOT)} names a directory of one machine"


@pytest.mark.parametrize("tool", ["make_state_diagrams.py", "make_operations.py"])
def test_pages_that_are_made_are_fresh(tool: str) -> None:
    check = [sys.executable, str(ROOT / "tools" / tool), "--check"]
    result = subprocess.run(check, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
