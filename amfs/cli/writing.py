"""Output of the commands: to stdout as it comes, to a file as a whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable

from amfs.errors import UsageError
from amfs.host.replacing import is_special, put_in_place
from amfs.host.umask import umask


def write_out(output: str, pieces: Iterable[bytes]) -> None:
    """Write to the file ``output``, or to stdout if it is "-". A file appears when it is complete; a device or a
    pipe is written to. Raises UsageError if it cannot."""
    if output == "-":
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    if is_special(output):
        try:
            with open(output, "wb") as file:
                for piece in pieces:
                    file.write(piece)
        except OSError as error:
            raise UsageError(f"cannot write {output}: {error.strerror or error}") from error
        return
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".amfs-", dir=os.path.dirname(output) or ".")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror or error}") from error
    try:
        with open(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
            os.fchmod(file.fileno(), 0o666 & ~umask())
        put_in_place(temporary, output)
    except OSError as error:
        os.unlink(temporary)
        raise UsageError(f"cannot write {output}: {error.strerror or error}") from error
    except BaseException:
        os.unlink(temporary)
        raise
