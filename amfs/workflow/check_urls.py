"""Parts of the checks of a workflow that are about files at URLs: where outputs go, and what must not lie where. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from amfs.vocabulary.paths import destination_at_url, url_of
from amfs.workflow.check_parts import Place, UnusableInputs, directory_of, with_parents
from amfs.workflow.workflow import Task


def places_of(needed: Iterable[str], base: str, paths: Mapping[str, str]) -> dict[str, str]:
    """Where shared files lie. ``paths``: of those that a catalog has elsewhere."""
    above = "" if base == "/" else base
    shared = {name: name if name[:1] == "/" else f"{above}/{name}" for name in needed}
    shared.update({name: url for name in shared if ":/" in name and (url := url_of(name))})
    shared.update(paths)
    return shared


def destinations_of(outputs: Iterable[str], paths: Mapping[str, str]) -> dict[str, str]:
    """The URLs of the outputs that go to one. ``paths``: the places that people gave to files."""
    return {name: url for name in outputs if (paths or ":/" in name) and (url := destination_at_url(name, paths))}


def below_brought(needed: Sequence[str], paths: Mapping[str, str]) -> list[tuple[str, str]]:
    """Inputs that lie in a directory which nodes bring from a URL, each with what is wrong with that: all tasks see what is there."""
    brought = {name for name in needed if ":/" in name and url_of(name)} | {name for name, path in paths.items() if "://" in path}
    if not brought:
        return []
    found = []
    for name in needed:
        if above := with_parents({directory_of(name)}) & brought:
            top = max(above)
            words = f"input {url_of(name) or name!r} lies in {url_of(top) or top!r}, which is an input, too"
            found.append((name, f"{words}; give the directory alone, or one of them another name by '#amfs path'"))
    return found


def find_missing(place: Place, names: list[str], unusable: dict[str, str]) -> set[str]:
    """Those that are not there, or of which nobody can tell it. The latter are added to ``unusable``, with the reason."""
    try:
        return place.missing(names)
    except UnusableInputs as error:
        unusable.update(error.reasons)
        return error.missing


def unusable_inputs(unusable: Mapping[str, str], needed: Iterable[str], paths: Mapping[str, str]) -> list[tuple[str, str]]:
    """Faults of such inputs: (input, fault). Those that are at one storage, and cannot be used for one reason, are one fault."""
    if not unusable:
        return []
    names = {paths.get(name, name): name for name in needed}
    alike: dict[tuple[str, str], list[str]] = {}
    for place, reason in unusable.items():
        if reason:
            storage = "/".join((url_of(place) or place).split("/", 3)[:3])
            alike.setdefault((storage, reason), []).append(place)
    found = []
    for (_, reason), (place, *more) in alike.items():
        others = f" (and {len(more)} more there)" if more else ""
        found.append((names[place], f"input {_at(names[place], url_of(place) or place)} cannot be used: {reason}{others}"))
    return found


def destination_faults(destinations: Mapping[str, str], inputs: Mapping[str, str]) -> list[tuple[str, str]]:
    """Faults of the places to which outputs go: (output or input, fault). ``inputs``: name -> place of what no task makes."""
    if not destinations:
        return []
    found = []
    outputs: dict[str, str] = {}  # place -> output
    for name, url in destinations.items():
        place = url.rstrip("/")
        if "/" not in place.partition("://")[2]:
            found.append((name, f"output {_at(name, url)} is all of a bucket or server; name an object in it, or a directory"))
        elif (other := outputs.setdefault(place, name)) != name:
            found.append((name, f"output {_at(name, url)} goes to the same place as output {_at(other, destinations[other])}"))
    sources = {url.rstrip("/"): name for name, url in inputs.items() if "://" in url}
    for place, name in outputs.items():
        words = f"output {_at(name, place)} lies in"
        for above in with_parents({directory_of(place)}):
            if above in outputs:
                found.append((name, f"{words} {above!r}, which is an output, too; name the directory alone, or the files in it"))
            elif above in sources:
                found.append((name, f"{words} {above!r}, which is an input, too; put it elsewhere"))
    for place, name in sources.items():
        for above in with_parents({directory_of(place)}) | {place}:
            if above in outputs:
                words = "is where" if above == place else f"lies in {above!r}, where"
                words = f"input {_at(name, place)} {words} output {outputs[above]!r} goes"
                found.append((name, f"{words}; name what the task makes in both tasks"))
    return found


def unstaged_faults(
    tasks: Iterable[Task], aliases: Mapping[str, str], outputs: Mapping[str, str], inputs: Mapping[str, str]
) -> list[tuple[int, str]]:
    """Tasks without sandboxes that have files at URLs, each with its line: nothing is brought to where they run."""
    at_urls = outputs.keys() | {name for name, place in inputs.items() if "://" in place}
    return [
        (task.line, f"task {task.id}: runs without a sandbox; only from sandboxes, and into them, files at URLs are copied: {name!r}")
        for task in (tasks if at_urls else ())
        if not task.staged
        for name in (*task.inputs, *task.outputs)
        if aliases.get(name, name) in at_urls
    ]


def _at(name: str, url: str) -> str:
    return repr(url) if url_of(name) else f"{name!r} at {url}"


class Destinations:
    """The URLs of the outputs of a list that grows."""

    def __init__(self) -> None:
        self._places: set[str] = set()
        self._above: set[str] = set()  # the directories in which these lie

    def faults(self, task: str, outputs: Iterable[str]) -> list[str]:
        """Faults of those of one more task."""
        found = []
        for name, url in destinations_of(outputs, {}).items():
            found += [f"task {task}: {words}" for _, words in destination_faults({name: url}, {})]
            if url in self._above or with_parents({directory_of(url)}) & self._places:
                words = f"task {task}: of {url!r} and another output one lies in the other"
                found.append(f"{words}; name the directory alone, or the files in it")
        return found

    def take(self, outputs: Iterable[str]) -> None:
        new = set(destinations_of(outputs, {}).values())
        self._places |= new
        self._above |= with_parents(set(map(directory_of, new)))
