"""Makes what a release consists of, after all that it wants has been checked: ``python tools/release.py 0.2.0 DIRECTORY``.

Owns the checklist, the checksums and their signature. It uploads nothing, tags nothing, and says at the end what is left to do by hand.

1. The version is the same in pyproject.toml, the package, CITATION.cff and CHANGELOG.md, which has a date for it; the tree has no changes.
2. ``make_dist.py`` makes and audits the source distribution and the wheel.
3. The wheel is installed in a new environment of each Python that is found, and the examples of the README run there.
4. SHA256SUMS is written; ``--sign KEY`` signs it with an SSH key, which ``ssh-keygen -Y verify -n amfs-hpc`` checks.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = {  # where the version stands
    "pyproject.toml": r'^version = "(.+)"$',
    "amfs/__init__.py": r'^__version__ = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LEFT = """left to do by hand:
  git tag -s v{version} -m "amfs {version}" && git push origin v{version}
  upload {directory}/*.whl and *.tar.gz to the package index, then SHA256SUMS to the page of the release
  wheels for other systems (aarch64, musl) come from cibuildwheel, as pyproject.toml configures it"""


def faults(root: Path, version: str) -> list[str]:
    """All that is in the way of a release of this version, a sentence each."""
    found = []
    for name, pattern in VERSIONS.items():
        said = re.search(pattern, (root / name).read_text(encoding="utf-8"), re.MULTILINE)
        if said is None or said[1] != version:
            found.append(f"{name} has version {said[1] if said else 'none'}, not {version}")
    heading = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$"
    if not re.search(heading, (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE):
        found.append(f"CHANGELOG.md has no heading '## [{version}] - YYYY-MM-DD'")
    if changed := _git(root, "status", "--porcelain").splitlines():
        found.append(f"the tree has changes that are not committed: {', '.join(line[3:] for line in changed[:3])}")
    if _git(root, "tag", "--list", f"v{version}").strip():
        found.append(f"the tag v{version} is there already")
    return found


def checksums(directory: Path) -> Path:
    """SHA256SUMS of the distributions in the directory, as ``sha256sum -c`` reads it."""
    files = sorted([*directory.glob("*.whl"), *directory.glob("*.tar.gz")])
    path = directory / "SHA256SUMS"
    path.write_text("".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files), encoding="utf-8")
    return path


def use(wheel: Path, python: str) -> None:
    """Install the wheel in a new environment, and run the README's examples there."""
    with tempfile.TemporaryDirectory(prefix="amfs-release-") as place:
        _run([python, "-m", "venv", f"{place}/env"])
        _run([f"{place}/env/bin/pip", "install", "-q", str(wheel)])
        _run([f"{place}/env/bin/python", str(ROOT / "tools/run_page.py"), str(ROOT / "README.md"), "--bin", f"{place}/env/bin"])


def works(python: str) -> bool:
    """A shim of a version manager stands also for versions that are not installed."""
    return subprocess.run([python, "-c", "import venv"], capture_output=True, check=False).returncode == 0


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout


def _run(command: Sequence[str]) -> None:
    print("  " + " ".join(command), flush=True)
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(f"no release: {command[0]} failed")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Check and make what a release consists of.")
    parser.add_argument("version")
    parser.add_argument("directory", type=Path, help="where the distributions go; new or empty")
    parser.add_argument("--sign", type=Path, metavar="KEY", help="a private SSH key for SHA256SUMS")
    options = parser.parse_args()
    directory: Path = options.directory.resolve()
    if found := faults(ROOT, options.version):
        sys.exit("no release:\n" + "\n".join(f"  {fault}" for fault in found))
    _run([sys.executable, str(ROOT / "tools/make_dist.py"), str(directory)])
    [wheel] = directory.glob("*.whl")
    pythons = [path for version in PYTHONS if (path := shutil.which(f"python{version}")) and works(path)] or [sys.executable]
    for python in pythons:
        use(wheel, python)
    sums = checksums(directory)
    if options.sign:
        _run(["ssh-keygen", "-Y", "sign", "-f", str(options.sign), "-n", "amfs-hpc", str(sums)])
    print(sums.read_text(encoding="utf-8") + LEFT.format(version=options.version, directory=directory))


if __name__ == "__main__":
    main()
