"""The checklist of a release: each thing that is in its way is told, and checksums are those that sha256sum checks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import release


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "amfs").mkdir()
    (tmp_path / "amfs/__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "CITATION.cff").write_text("version: 1.2.3\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.3] - 2026-11-26\n")
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path


def test_nothing_is_in_the_way_of_a_tree_that_is_ready(tree: Path) -> None:
    assert release.faults(tree, "1.2.3") == []


def test_everything_that_is_in_the_way_is_told_at_once(tree: Path) -> None:
    subprocess.run(["git", "-C", str(tree), "tag", "v2.0.0"], check=True)
    (tree / "notes").write_text("not committed")
    said = "\n".join(release.faults(tree, "2.0.0"))
    for name in release.VERSIONS:
        assert f"{name} has version 1.2.3, not 2.0.0" in said
    for fault in ("no heading '## [2.0.0]", "notes", "v2.0.0 is there"):
        assert fault in said


def test_checksums_are_those_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"wheel")
    (tmp_path / "b.tar.gz").write_bytes(b"source")
    release.checksums(tmp_path)
    assert subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=tmp_path, capture_output=True, check=False).returncode == 0
    (tmp_path / "a.whl").write_bytes(b"other")
    assert subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=tmp_path, capture_output=True, check=False).returncode != 0
