"""The little of FITS that this example needs: one two-dimensional image of 32- or 64-bit floats in one file.

Numpy only, so that the sky can be made and mosaics compared without astropy. It knows nothing of projections and nothing of amfs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Value = bool | int | float | str
Header = dict[str, Value]
_BLOCK = 2880  # FITS files consist of blocks of this many bytes
_CARD = 80
_DTYPES = {8: ">u1", 16: ">i2", 32: ">i4", -32: ">f4", -64: ">f8"}


def _card(key: str, value: Value) -> str:
    if isinstance(value, bool):
        text = f"{'T' if value else 'F':>20}"
    elif isinstance(value, int):
        text = f"{value:>20d}"
    elif isinstance(value, float):
        text = f"{value:>20.12G}"
    else:
        text = "'" + f"{value:<8}" + "'"
    return f"{key:<8}= {text}".ljust(_CARD)


def _value(text: str) -> Value:
    text = text.strip()
    if text.startswith("'"):
        return text[1 : text.index("'", 1)].rstrip()
    text = text.split("/")[0].strip()
    if text in ("T", "F"):
        return text == "T"
    try:
        return int(text)
    except ValueError:
        return float(text)


def write(path: str | Path, data: NDArray[np.float32], header: Header) -> None:
    """Write ``data`` (rows are y, from the bottom up) as 32-bit floats with the keywords of ``header``."""
    rows, columns = data.shape
    cards: Header = {"SIMPLE": True, "BITPIX": -32, "NAXIS": 2, "NAXIS1": columns, "NAXIS2": rows}
    cards.update({key: value for key, value in header.items() if key not in cards})
    head = "".join(_card(key, value) for key, value in cards.items()) + "END".ljust(_CARD)
    head = head.ljust(-(-len(head) // _BLOCK) * _BLOCK)
    body = np.ascontiguousarray(data, dtype=">f4").tobytes()
    Path(path).write_bytes(head.encode("ascii") + body + b"\0" * (-len(body) % _BLOCK))


def read(path: str | Path) -> tuple[NDArray[np.float64], Header]:
    """The image and its keywords. Raises ValueError when the file is not a plain two-dimensional FITS image."""
    raw = Path(path).read_bytes()
    if not raw.startswith(b"SIMPLE  ="):
        raise ValueError(f"{path}: not a FITS file")
    header: Header = {}
    position = 0
    while position + _CARD <= len(raw):
        card = raw[position : position + _CARD].decode("ascii", "replace")
        position += _CARD
        if card.startswith("END"):
            break
        if card[8:10] == "= ":
            header[card[:8].strip()] = _value(card[10:])
    position = -(-position // _BLOCK) * _BLOCK
    dtype = _DTYPES.get(int(header.get("BITPIX", 0)))
    if dtype is None or int(header.get("NAXIS", 0)) != 2:
        raise ValueError(f"{path}: not a two-dimensional image")
    shape = (int(header["NAXIS2"]), int(header["NAXIS1"]))
    count = shape[0] * shape[1]
    if len(raw) < position + count * np.dtype(dtype).itemsize:
        raise ValueError(f"{path}: the file ends before its image does")
    data = np.frombuffer(raw, dtype=dtype, count=count, offset=position)
    return data.reshape(shape).astype(np.float64), header


def write_template(path: str | Path, header: Header) -> None:
    """Write ``header`` as Montage's header template: one keyword a line, which says how the mosaic is to lie on the sky."""
    lines = [_card(key, value).rstrip() for key, value in header.items()]
    Path(path).write_text("\n".join([*lines, "END", ""]), encoding="ascii")
