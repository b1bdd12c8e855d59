"""The recipes of ``packaging/`` say of versions and dependencies what ``pyproject.toml`` says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WANTED = {
    re.split(r"[<>=\[]", text)[0]: text.partition(">=")[2] for text in PROJECT["dependencies"]
}  # name -> the lowest version


def recipe(name: str) -> str:
    return (ROOT / "packaging" / name).read_text()


def test_conda() -> None:
    found = yaml.safe_load(recipe("conda/recipe.yaml"))
    assert found["context"]["version"] == PROJECT["version"] and found["package"]["name"] == PROJECT["name"]
    needed = dict(line.split(" >=") for line in found["requirements"]["run"])
    assert needed.pop("python") == PROJECT["requires-python"].removeprefix(">=")
    assert {name.removeprefix("python-"): version for name, version in needed.items()} == WANTED
    assert found["build"]["python"]["entry_points"] == [f"{name} = {path}" for name, path in PROJECT["scripts"].items()]
    assert found["about"]["summary"] == PROJECT["description"]


def test_spack() -> None:
    text = recipe("spack/amfs-hpc/package.py")
    compile(text, "package.py", "exec")
    needed = dict(re.findall(r'depends_on\("py-([\w-]+)@([\d.]+):"\)', text))
    assert needed == WANTED
    assert f'python@{PROJECT["requires-python"].removeprefix(">=")}:' in text
    assert f'amfs_hpc-{PROJECT["version"]}.tar.gz' in text
    extras = dict(re.findall(r'depends_on\("py-([\w-]+)@([\d.]+):", when=', text))
    assert {f"{name}>={version}" for name, version in extras.items()} <= {
        *PROJECT["optional-dependencies"]["mpi"], *PROJECT["optional-dependencies"]["fs"]
    }  # fmt: skip


def test_containers() -> None:
    for name, label in (("Containerfile", 'version="{}"'), ("apptainer.def", "Version {}")):
        text = recipe(name)
        assert label.format(PROJECT["version"]) in text
        for extras in re.findall(r"\[([a-z,]+)\]", text):
            assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()


def test_wheels_are_built_for_what_is_configured() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/wheels.yml").read_text())
    matrix = workflow["jobs"]["wheels"]["strategy"]["matrix"]
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    assert configured["build"] == [f"cp311-{libc}_*" for libc in matrix["libc"]]
    assert len(matrix["runner"]) == len(configured["archs"])
