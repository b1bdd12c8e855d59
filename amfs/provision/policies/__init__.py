"""The policies that come with amfs, and files of users. Owns where they lie. Must not know: what they mean (``engine.policy``)."""

from __future__ import annotations

from pathlib import Path

from amfs.engine.flapping import check
from amfs.engine.policy import Policy, parse
from amfs.errors import UsageError

HERE = Path(__file__).parent
SHIPPED = tuple(sorted(path.stem for path in HERE.glob("*.toml")))


def load(named: str, least: int = 0, most: int = 0) -> Policy:
    """The policy ``named``: one of SHIPPED, or a file; between ``least`` and ``most`` nodes, if given. Raises UsageError."""
    path = HERE / f"{named}.toml" if named in SHIPPED else Path(named)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"there is no policy '{named}': name a file, or one of {', '.join(SHIPPED)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the policy {named}: {getattr(error, 'strerror', None) or error}") from None
    policy = parse(text, named)
    return check(policy.within(least, most) if most else policy)
