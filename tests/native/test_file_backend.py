"""Acts of a node on its parts for the file system's works."""

from __future__ import annotations

from pathlib import Path

import pytest

from amfs._native import Meta
from amfs.node.file_backend import FileBackend
from amfs.vocabulary import fs_works as w
from amfs.vocabulary.attr import LOCAL, Opened

INO, SIZE = 7, 10_000


def test_a_file_that_is_not_here_is_not_cut_to_zeros(tmp_path: Path) -> None:
    """Should its part have gone since it was opened, whoever cuts it is told so. An empty file may have no part yet."""
    backend = FileBackend(0, Meta(0), str(tmp_path))
    try:
        with pytest.raises(FileNotFoundError):
            backend.truncate(w.Truncate(INO, Opened(LOCAL, 0, 0, SIZE, 0), SIZE // 2))
        assert backend.io.list_parts() == []
        facts = backend.truncate(w.Truncate(INO, Opened(LOCAL, 0, 0, 0, 0), SIZE))
        assert facts is not None and facts.size == SIZE
    finally:
        backend.stop()
