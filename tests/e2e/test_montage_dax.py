"""A DAX that Montage's own mDAG writes, with its catalog, runs as it is and gives the mosaic that its commands give by hand."""


from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="the Montage example needs numpy (pip install 'amfs-hpc[examples]')")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "montage"))

import compare
import make_sky

from amfs.translate.detect import load
from amfs.translate.place import HostPlace
from amfs.workflow.checks import check

PROGRAMS = ("mDAG", "mDAGTbls", "mImgtbl", "mMakeHdr", "mProjectPP", "mDiffFit", "mConcatFit", "mBgModel", "mBackground", "mAdd", "mViewer")
if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
    pytest.skip(f"not installed: {', '.join(missing)} (Debian: montage, montage-gridtools)", allow_module_level=True)

Amfs = Callable[..., subprocess.CompletedProcess[str]]

#: Stand-ins for answers of the network to mDAG, for its mistakes, and for programs that Debian does not ship.
STANDINS = {
    "mArchiveList": 'for last; do :; done; cp "$MONTAGE_TEST/raw.tbl" "$last"; echo \'[struct stat="OK", count="9"]\'',
    "mDAGTbls": 'for word; do case "$word" in *big_region*) cp "$MONTAGE_TEST/dag/region.hdr" "$word";; esac; done; exec {real} "$@"',
    "mJPEG": 'exec mViewer -ct 1 -gray "$4" min max gaussian-log -out "$9"',
}


def write_dax(where: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sky of nine images, and mDAG's workflow for it in a directory of its own, with its list of files as the replica catalog."""
    make_sky.make_sky(where / "sky", grid=3, size=100, seed=11)
    dag = where / "dag"
    dag.mkdir()
    (where / "bin").mkdir()
    for name, script in STANDINS.items():
        path = where / "bin" / name
        path.write_text("#!/bin/sh\n" + script.replace("{real}", shutil.which(name) or "") + "\n")
        path.chmod(0o755)
    monkeypatch.setenv("MONTAGE_TEST", str(where))
    monkeypatch.setenv("PATH", f"{where / 'bin'}{os.pathsep}{os.environ['PATH']}")

    def run(*words: str, cwd: Path) -> None:
        done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    run("mImgtbl", "sky/raw", "raw.tbl", cwd=where)
    run("mMakeHdr", "raw.tbl", "dag/region.hdr", cwd=where)
    heads = iter(["        URL|", "       char|", "           |", "           |"])
    lines = []
    for line in (where / "raw.tbl").read_text().splitlines():
        if line.startswith("|"):
            line = re.sub(r"\|( *)fname( *)\|", r"|\1file \2|", line) + next(heads)
        elif line.strip() and not line.startswith("\\"):
            line += " http://x/y"
        lines.append(line)
    (where / "raw.tbl").write_text("\n".join(lines) + "\n")
    run("mDAG", "-h", "2mass", "j", "region.hdr", ".", "http://x", cwd=dag)
    # mDAG does not survive long addresses, so they are put right afterwards.
    (dag / "cache.list").write_text((dag / "cache.list").read_text().replace("http://x/.", f"file://{dag}"))
    (dag / "pegasus.properties").write_text("pegasus.catalog.replica=File\npegasus.catalog.replica.file=cache.list\n")
    return dag / "dag.xml"


@pytest.mark.soak
def test_the_dax_of_mdag(amfs: Amfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    dax = write_dax(tmp_path, monkeypatch)
    place, by_hand = tmp_path / "place", tmp_path / "by hand"
    shutil.copytree(tmp_path / "sky" / "raw", place)
    shutil.copytree(tmp_path / "sky" / "raw", by_hand)
    done = amfs("run", "--local", "-q", "-C", str(place), str(dax))
    assert done.returncode == 0, done.stderr

    workflow = load(dax)
    plan = check(workflow, HostPlace(by_hand))
    for name, path in plan.paths.items():
        shutil.copy(path, by_hand / name)
    for index in plan.walk():
        one = subprocess.run(workflow.tasks[index].argv, cwd=by_hand, capture_output=True, text=True, timeout=60)
        assert one.returncode == 0, one.stdout + one.stderr
    finals = {path.name for path in place.iterdir()} - {path.name for path in (tmp_path / "sky" / "raw").iterdir()}
    assert sorted(re.sub(r"(_\d+)+", "", name) for name in finals) == ["mosaic.fits", "mosaic_area.fits", "shrunken.fits", "shrunken.jpg"]
    for name in finals:
        if name.endswith(".fits"):
            assert compare.differing_pixels(place / name, by_hand / name) == 0
