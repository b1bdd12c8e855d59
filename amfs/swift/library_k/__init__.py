"""The library of Swift/K: ``K`` has all its functions. Names in camel case are there in lower case, too (``readData``, ``readdata``)."""

import re

from amfs.swift.library_k import checks, data, data_v2, numbers, output, strings, system
from amfs.swift.library_k.registry import K

__all__ = ["K", "checks", "data", "data_v2", "numbers", "output", "strings", "system"]


def _add_lower_case() -> None:
    known = {declared.signature for declared in K.functions}
    for declared in list(K.functions):
        lower = re.sub(r"\w+(?=\()", lambda name: name[0].lower(), declared.signature.replace("(", "\0", 1), count=1).replace("\0", "(", 1)
        if lower not in known:
            K.functions.append(declared._replace(signature=lower))


_add_lower_case()
