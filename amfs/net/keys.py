"""The secrets of a session. They are only ever in files of mode 0600 in directories of mode 0700, and on pipes."""

from __future__ import annotations

import msgspec


class Keys(msgspec.Struct, frozen=True):
    """The CURVE key pairs of a session (Z85 text), and the key of its data connections.

    Their holder is the session's owner: there is one trust domain.
    """

    server_public: str
    server_secret: str
    client_public: str
    client_secret: str
    data: bytes  # 32 random bytes

    def __repr__(self) -> str:  # so that no log or traceback shows a secret
        return f"Keys(server_public={self.server_public!r}, …)"
