"""Ctrl-C while the command is still being imported: no traceback."""

from __future__ import annotations

import subprocess
import sys

INTERRUPTED = """
import sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "amfs.cli.main":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
sys.argv = ["amfs", "--help"]
"""


def interrupted(rest: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", INTERRUPTED + rest], capture_output=True, text=True, timeout=60, check=False)


def test_an_interrupt_at_the_very_beginning_is_told_in_a_line() -> None:
    done = interrupted("import runpy; runpy.run_module('amfs', run_name='__main__')")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "amfs: interrupted\n")


def test_so_it_is_of_the_script_that_is_installed() -> None:
    script = "from importlib.metadata import distribution\n"
    script += "(entry,) = distribution('amfs-hpc').entry_points.select(group='console_scripts', name='amfs')\nsys.exit(entry.load()())"
    done = interrupted(script)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "amfs: interrupted\n")
