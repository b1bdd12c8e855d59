"""The examples in Swift: their answers are right."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples" / "swift"


@pytest.mark.parametrize(
    "name", ["sweep", "landuse", "pi", "wordlengths", "mosaic", "blast", "hercules", "sweep-k", "pi-k", "wordlengths-k"]
)
def test_answers_are_right(name: str, tmp_path: Path) -> None:
    if name == "blast" and not shutil.which("blastn"):
        pytest.skip("there is no blastn here")
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    words = [sys.executable, str(EXAMPLES / "check.py"), str(tmp_path / "work"), name]
    done = subprocess.run(words, env=env, text=True, capture_output=True, timeout=100, check=False)
    assert done.returncode == 0 and done.stdout == f"{name}: right\n", done.stdout + done.stderr
