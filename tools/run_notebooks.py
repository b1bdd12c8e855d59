"""Execute notebooks and write them back with their output: ``python tools/run_notebooks.py examples/*/*.ipynb``.

Parts that change from run to run without meaning (times of execution, versions of the kernel) are left out, so that a difference is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def execute(path: Path, timeout_s: int = 600) -> nbformat.NotebookNode:
    """The notebook with its output; stands where it lies. Raises CellExecutionError for the first cell that fails."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    NotebookClient(
        notebook, timeout=timeout_s, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}, record_timing=False
    ).execute()
    notebook.metadata.pop("language_info", None)
    return notebook


def main() -> None:
    for name in sys.argv[1:]:
        nbformat.write(execute(Path(name)), name)
        print(name)


if __name__ == "__main__":
    main()
