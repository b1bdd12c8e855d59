"""Montage through amfs gives the mosaic that the same programs give by hand, pixel by pixel, and whatever happens on the way."""

# ruff: noqa: E402  (the example is a directory of scripts, found only once it is on the path)
from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daily import daily

pytest.importorskip("numpy", reason="the Montage example needs numpy (pip install 'amfs-hpc[examples]')")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "montage"
sys.path.insert(0, str(EXAMPLE))

import compare
import ipac
import make_sky
import minifits
import toolkit

try:
    toolkit.find()
except toolkit.NoMontage as error:
    pytest.skip(str(error), allow_module_level=True)


def run_script(name: str, *arguments: object, ok: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / name), *map(str, arguments)], capture_output=True, text=True, timeout=100, check=False
    )
    assert not ok or done.returncode == 0, done.stdout + done.stderr
    return done


def available_tools() -> list[str]:
    kinds = []
    for kind in ("montagepy", "debian"):
        try:
            kinds.append(toolkit.find(kind).kind)
        except toolkit.NoMontage:
            continue
    return kinds


#: Of the tools, those whose processes start and end soonest: enough where not the pixels but how runs end and begin again is in question.
QUICK = [kind for kind in available_tools() if kind == "debian"] or available_tools()[:1]
by_quick_tools = pytest.mark.parametrize("by_hand", QUICK, indirect=True)


def new_sky(where: Path) -> Path:
    make_sky.make_sky(where, grid=3, size=120, seed=7)
    return where


def same_mosaics(one: Path, other: Path) -> bool:
    return not any(compare.differing_pixels(one / name, other / name) for name in ("mosaic.fits", "mosaic_area.fits"))


_made_by_hand: dict[str, Path] = {}  # pytest sets a fixture up again where another parametrization comes between


@pytest.fixture(scope="module", params=daily(available_tools(), *QUICK))
def by_hand(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The tools, and a directory with the mosaic they make serially, without amfs."""
    if request.param not in _made_by_hand:
        base = tmp_path_factory.mktemp(f"by-hand-{request.param}")
        run_script("serial.py", new_sky(base / "sky"), base / "work", "--tools", request.param, "--uncorrected")
        _made_by_hand[request.param] = base / "work"
    return request.param, _made_by_hand[request.param]


def test_sky_is_the_same_for_the_same_seed_and_another_for_another(tmp_path: Path) -> None:
    first, again = new_sky(tmp_path / "first"), new_sky(tmp_path / "again")
    names = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    assert len(names) == 9 + 2
    assert all((first / name).read_bytes() == (again / name).read_bytes() for name in names)
    make_sky.make_sky(tmp_path / "other", grid=3, size=120, seed=8)
    assert (first / "raw/004.fits").read_bytes() != (tmp_path / "other/raw/004.fits").read_bytes()


def test_background_correction_takes_the_backgrounds_away(by_hand: tuple[str, Path]) -> None:
    _, work = by_hand
    truth = work.parent / "sky" / "truth.fits"
    before, after = (compare.residual(work / name, truth) for name in ("uncorrected.fits", "mosaic.fits"))
    assert before > 15.0
    assert after < before / 10.0


def test_mosaic_through_amfs_is_the_one_made_by_hand(by_hand: tuple[str, Path], tmp_path: Path) -> None:
    kind, work = by_hand
    sky = new_sky(tmp_path / "sky")
    # Three at a time, so that nine images and their overlaps make trees of reductions.
    run_script("run_montage.py", sky, "--tools", kind, "--arity", 3, "--uncorrected")
    assert same_mosaics(sky, work)
    assert compare.differing_pixels(sky / "uncorrected.fits", work / "uncorrected.fits") == 0
    # Files between the tasks never reached shared storage.
    left = {path.name for path in sky.iterdir()}
    assert left >= {"mosaic.fits", "mosaic_area.fits", "raw", "region.hdr"}
    assert not left & {"proj", "fit", "corr", "images.tbl", "fits.tbl", "corrections.tbl", "corrected.tbl"}


@by_quick_tools
def test_mosaic_from_a_task_list_is_the_one_made_by_hand(by_hand: tuple[str, Path], tmp_path: Path) -> None:
    kind, work = by_hand
    sky = new_sky(tmp_path / "sky")
    written = run_script("write_workflow.py", sky, "--tools", kind, "--arity", 3, "--overlaps", work / "overlaps.tbl").stdout
    (sky / "montage.tasks").write_text(written)
    done = subprocess.run(
        [sys.executable, "-m", "amfs", "run", "montage.tasks"], cwd=sky, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert same_mosaics(sky, work)


def test_overlaps_planned_from_the_raw_images_hold_those_found_by_the_workflow(by_hand: tuple[str, Path], tmp_path: Path) -> None:
    kind, work = by_hand
    listed = run_script("write_workflow.py", new_sky(tmp_path / "sky"), "--tools", kind).stdout
    planned = {line.split()[0].removeprefix("fit-") for line in listed.splitlines() if line.startswith("fit-")}
    fits = ipac.parse((work / "fits.tbl").read_text())
    fitted = {f"{int(a):06d}.{int(b):06d}" for a, b in zip(fits.column("plus"), fits.column("minus"), strict=True)}
    assert len(fitted) >= 12
    assert fitted <= planned


def start_and_kill(sky: Path, grown: int, *arguments: object) -> None:
    """kill -9 to the driver when its journal has ``grown`` to so many bytes."""
    journal = sky / "montage.journal"
    driver = subprocess.Popen(
        [sys.executable, str(EXAMPLE / "run_montage.py"), str(sky), *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    hang = time.monotonic() + 60
    while driver.poll() is None and time.monotonic() < hang and (not journal.exists() or journal.stat().st_size < grown):
        time.sleep(0.002)
    driver.kill()
    assert driver.wait() == -signal.SIGKILL, "it had ended before it could be killed"


@pytest.fixture(scope="module")
def whole_journal(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Bytes of the journal of a run that was left alone."""
    sky = new_sky(tmp_path_factory.mktemp("whole"))
    run_script("run_montage.py", sky, "--tools", QUICK[0])
    return (sky / "montage.journal").stat().st_size


@pytest.mark.slow
@by_quick_tools
@pytest.mark.parametrize("part", [pytest.param(0.15, marks=pytest.mark.soak), 0.5, pytest.param(0.85, marks=pytest.mark.soak)])
def test_killed_in_the_middle_and_resumed_gives_the_identical_mosaic(
    part: float, whole_journal: int, by_hand: tuple[str, Path], tmp_path: Path
) -> None:
    kind, work = by_hand
    sky = new_sky(tmp_path / "sky")
    start_and_kill(sky, round(part * whole_journal), "--tools", kind)
    resumed = run_script("run_montage.py", sky, "--tools", kind, "--resume")
    assert re.search(r"^\d+ tasks? finished, [1-9]\d* done before", resumed.stderr, re.MULTILINE), resumed.stderr
    assert same_mosaics(sky, work)


@pytest.mark.soak
@by_quick_tools
def test_killed_and_its_memory_lost_and_resumed_gives_the_identical_mosaic(
    whole_journal: int, by_hand: tuple[str, Path], tmp_path: Path
) -> None:
    """As after a crash of the machine: the journal is there, the files in memory are not."""
    kind, work = by_hand
    sky, store = new_sky(tmp_path / "sky"), tmp_path / "store"
    store.mkdir()
    start_and_kill(sky, whole_journal // 2, "--tools", kind, "--store", store)
    left = list(store.iterdir())
    assert left, "nothing was in the store when the driver was killed"
    for directory in left:
        # A program that was running may still be writing its last file.
        shutil.rmtree(directory, ignore_errors=True)
    run_script("run_montage.py", sky, "--tools", kind, "--resume")
    assert same_mosaics(sky, work)


@pytest.fixture
def four_nodes() -> Iterator[str]:
    """The name of a session of four node servers on this machine."""
    name = f"montage-{os.getpid()}"
    amfs_command("up", "--nodes", "4", "--slots", "1", "--name", name)
    try:
        yield name
    finally:
        amfs_command("down", name)


def amfs_command(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "amfs", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@by_quick_tools
def test_mosaic_on_four_nodes_is_the_one_made_by_hand(four_nodes: str, by_hand: tuple[str, Path], tmp_path: Path) -> None:
    kind, work = by_hand
    sky = new_sky(tmp_path / "sky")
    done = run_script("run_montage.py", sky, "--tools", kind, "--arity", 3, "--session", four_nodes)
    assert "on 4 nodes" in done.stderr
    assert same_mosaics(sky, work)


@pytest.mark.soak
@by_quick_tools
def test_driver_of_four_nodes_killed_and_run_again(four_nodes: str, whole_journal: int, by_hand: tuple[str, Path], tmp_path: Path) -> None:
    kind, work = by_hand
    sky = new_sky(tmp_path / "sky")
    start_and_kill(sky, whole_journal // 2, "--tools", kind, "--session", four_nodes)
    run_script("run_montage.py", sky, "--tools", kind, "--session", four_nodes, "--resume")
    assert same_mosaics(sky, work)


def test_resume_does_what_is_not_done_and_makes_again_what_is_lost(tmp_path: Path) -> None:
    sky = new_sky(tmp_path / "sky")
    run_script("run_montage.py", sky, "--tools", QUICK[0])
    mosaic, made = sky / "mosaic.fits", (sky / "mosaic.fits").read_bytes()
    inode = mosaic.stat().st_ino
    again = run_script("run_montage.py", sky, "--tools", QUICK[0], "--resume")
    assert re.search(r"^0 tasks finished, \d+ done before", again.stderr, re.MULTILINE), again.stderr
    assert mosaic.stat().st_ino == inode
    # The files between went with the first run, so all that leads to the mosaic has to run again.
    mosaic.unlink()
    third = run_script("run_montage.py", sky, "--tools", QUICK[0], "--resume")
    assert not re.search(r"^0 tasks finished", third.stderr, re.MULTILINE), third.stderr
    assert mosaic.read_bytes() == made


def test_tables_combine_the_same_however_they_are_grouped() -> None:
    rng = random.Random(5)
    names = [f"proj/{n:03d}.fits" for n in range(20)]
    whole = [ipac.Table(["cntr", "ra", "fname"], ["int", "double", "char"], [["0", f"{rng.random():.7f}", name]]) for name in names]
    expected = ipac.render(ipac.merge_images(whole))
    for _ in range(50):
        parts = whole[:]
        rng.shuffle(parts)
        while len(parts) > 1:
            arity = rng.randint(2, 6)
            # Through text, as partial tables travel as files.
            parts = [ipac.parse(ipac.render(ipac.merge_images(parts[i : i + arity]))) for i in range(0, len(parts), arity)]
        assert ipac.render(parts[0]) == expected
    assert ipac.parse(expected).column("fname") == names
    assert ipac.parse(expected).column("cntr") == [str(n) for n in range(20)]


def test_an_overlap_without_a_fit_is_left_out_of_the_table(tmp_path: Path) -> None:
    names = ("a", "b", "c", "crpix1", "crpix2", "xmin", "xmax", "ymin", "ymax", "xcenter", "ycenter", "npixel", "rms")
    boxes = ("boxx", "boxy", "boxwidth", "boxheight", "boxang")
    good = '[struct stat="OK", ' + ", ".join(f"{name}={n}.5" for n, name in enumerate(names + boxes)) + "]\n"
    (tmp_path / "fit.000000.000001.txt").write_text(good)
    (tmp_path / "fit.000000.000002.txt").write_text('[struct stat="ERROR", msg="All pixels are blank."]\n')
    done = run_script("concat_fit.py", tmp_path / "fits.tbl", *sorted(tmp_path.glob("fit.*")))
    table = ipac.parse((tmp_path / "fits.tbl").read_text())
    assert [row[:2] for row in table.rows] == [["0", "1"]]
    assert "1 of 2 overlaps gave no fit" in done.stderr


def test_comparison_sees_one_pixel(tmp_path: Path) -> None:
    data, header = minifits.read(new_sky(tmp_path / "sky") / "truth.fits")
    minifits.write(tmp_path / "one.fits", data, header)  # type: ignore[arg-type]
    data[3, 5] += 1.0
    minifits.write(tmp_path / "other.fits", data, header)  # type: ignore[arg-type]
    assert compare.differing_pixels(tmp_path / "one.fits", tmp_path / "one.fits") == 0
    assert compare.differing_pixels(tmp_path / "one.fits", tmp_path / "other.fits") == 1


def test_errors_are_one_clear_line(tmp_path: Path) -> None:
    for script, arguments, words in (
        ("m.py", ["mNothing"], "mNothing"),
        ("run_montage.py", [tmp_path], "make_sky.py"),
        ("serial.py", [tmp_path, tmp_path / "work"], "region.hdr"),
        ("compare.py", [tmp_path / "a.fits", tmp_path / "b.fits"], "a.fits"),
    ):
        done = run_script(script, *arguments, ok=False)
        assert done.returncode != 0
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_images_from_s3_and_a_mosaic_there() -> None:
    pytest.importorskip("moto", reason="S3 is moto (pip install 'amfs-hpc[test]')")
    done = run_script("at_urls.py", "s3", "--grid", "2", "--size", "60", "--nodes", "2", "--no-install", "--tools", QUICK[0])
    assert re.search(r"s3: \d+ tasks on 2 nodes in .* the same bytes", done.stdout), done.stdout
