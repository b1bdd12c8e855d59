"""The areas of a POSIX file system, case by case: the mount must do what tmpfs does, result by result and file by file."""

from __future__ import annotations

import areas_files  # noqa: F401
import areas_names  # noqa: F401
import areas_nodes  # noqa: F401
import areas_rights  # noqa: F401
import areas_times  # noqa: F401
import pytest
import tables
from comparing import Pair


@pytest.mark.parametrize("group", tables.GROUPS)
def test_as_on_tmpfs(group: str, pair: Pair, request: pytest.FixtureRequest) -> None:
    """Soak runs make all calls, others a third of those of large groups."""
    pair.run_group(group, 1 if "soak" in (request.config.option.markexpr or "") else 3)
