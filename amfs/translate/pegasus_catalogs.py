"""Pegasus 5 catalogs: which program a transformation is, where a file lies, what a site sets. Inline in a workflow or beside it.

Reads the YAML catalogs and the older text ones (``File`` replica catalog, ``Text`` transformation catalog). Inline entries
come first, as in Pegasus. Owns nothing but what it has read; faults and remarks go to the reader it works for.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from amfs.translate.document import DocumentReader, local_path
from amfs.translate.pegasus_profiles import Profiles
from amfs.translate.shell_quoting import Malformed, split
from amfs.translate.yaml_stream import Map, YamlDocument, YamlError

#: Names under which Pegasus looks for catalogs when no properties say otherwise, and the properties that do.
DEFAULT_NAMES = {
    "siteCatalog": ("pegasus.catalog.site", "sites.yml"),
    "replicaCatalog": ("pegasus.catalog.replica", "replicas.yml"),
    "transformationCatalog": ("pegasus.catalog.transformation", "transformations.yml"),
}
PROPERTIES = "pegasus.properties"

#: All the matching of names against regular expressions of a replica catalog may take this long (some expressions never end).
REGEX_SECONDS_MAX = 10.0

LOCAL = "local"


class Place(msgspec.Struct):
    """A transformation at one site."""

    site: str
    pfn: str
    installed: bool = True
    profiles: Profiles = {}
    container: str = ""


class Transformation(msgspec.Struct):
    places: list[Place] = []
    profiles: Profiles = {}
    requires: tuple[str, ...] = ()

    def at(self, wanted: str) -> Place | None:
        """The place to use: the wanted site, the local one, one where it is installed, any."""

        def rank(place: Place) -> int:
            return (place.site != wanted) * 4 + (place.site != LOCAL) * 2 + (not place.installed)

        return min(self.places, key=rank, default=None)


def key_of(namespace: str, name: str, version: str) -> str:
    """``ns::name:version`` without the parts that are empty."""
    return (f"{namespace}::" if namespace else "") + name + (f":{version}" if version else "")


class Catalogs:
    """All that a workflow's catalogs say."""

    def __init__(self, reader: DocumentReader) -> None:
        self._reader = reader
        self.transformations: dict[str, Transformation] = {}
        self.sites: dict[str, Profiles] = {}
        self.replicas: dict[str, str] = {}  # lfn -> absolute path or URL
        self._sites_of: dict[str, str] = {}  # lfn -> site of the replica taken
        self._patterns: list[tuple[re.Pattern[str], str, int]] = []
        self._regex_seconds = 0.0
        self._conf = ""
        self._from = ""  # where its planner stands
        self._properties: Mapping[str, str] = {}
        self._outer: Catalogs | None = None

    def told(self, conf: str, properties: Mapping[str, str], outer: Catalogs | None) -> None:
        """The planner's options for a sub-workflow: the file of its properties ('': none), single properties, and the catalogs of the
        workflow around it, which it sees when it is not told a file."""
        self._conf, self._properties, self._outer = conf, properties, None if conf else outer
        self._from = outer._reader.directory if conf and outer is not None else ""

    # ── looking up ─────────────────────────────────────────────────────────────────────────────────

    def transformation(self, key: str) -> Transformation | None:
        known = self.transformations.get(key)
        if known is not None or self._outer is None:
            return known
        found = self._outer.transformation(key)
        if found is None:
            return None
        reader = self._outer._reader  # relative names in its catalogs are relative to its directory, not to ours
        places = [msgspec.structs.replace(each, pfn=_placed(each.pfn, reader)) for each in found.places]
        return msgspec.structs.replace(found, places=places)

    def site(self, name: str) -> Profiles:
        known = self.sites.get(name)
        return known if known is not None else self._outer.site(name) if self._outer is not None else {}

    # ── inline ─────────────────────────────────────────────────────────────────────────────────────

    def take(self, kind: str, value: Any, line: int) -> bool:
        """Take in what stands under ``siteCatalog``, ``replicaCatalog`` or ``transformationCatalog``; whether there was anything."""
        if value is None:
            return False
        if not isinstance(value, Map):
            self._reader.fault(line, f"{kind} must be a mapping")
            return True
        reference = value.get("$ref")
        if reference is not None:
            path = self._reader.beside(str(reference))
            if path:
                self.read(kind, path, line)
            else:
                self._reader.remark(f"$ref {kind}", value.line, f"{kind} is at {reference}: nothing is fetched, so it is not read")
            return True
        {"siteCatalog": self._site_catalog, "replicaCatalog": self._replica_catalog}.get(kind, self._transformation_catalog)(value)
        return True

    def _site_catalog(self, value: Map) -> None:
        for site in self._maps(value, "sites"):
            name = self._text(site, "name")
            if name and name not in self.sites:
                self.sites[name] = self.profiles(site)

    def _replica_catalog(self, value: Map) -> None:
        for replica in self._maps(value, "replicas"):
            lfn = self._text(replica, "lfn")
            if not lfn:
                self._reader.fault(replica.line, "a replica without an lfn")
                continue
            places = [(self._text(each, "site"), self._text(each, "pfn")) for each in self._maps(replica, "pfns")]
            if "pfn" in replica:  # the short form
                places.append((self._text(replica, "site"), self._text(replica, "pfn")))
            if self._text(replica, "regex").lower() == "true":
                for _, pfn in places[:1]:
                    self._pattern(lfn, pfn, replica.line)
                continue
            for site, pfn in places:
                self._replica(lfn, site, pfn)
            self._size(lfn, replica)

    def _size(self, lfn: str, node: Map) -> None:
        metadata = node.get("metadata")
        if isinstance(metadata, Map) and (size := re.fullmatch(r"\d{1,18}", str(metadata.get("size")), re.ASCII)):
            self._reader.set_size(lfn, int(size[0]), node.line)

    def _replica(self, lfn: str, site: str, pfn: str) -> None:
        if not pfn:
            return
        known = self._sites_of.get(lfn)
        where = self._reader.beside(expand(pfn, self._reader.directory)) or pfn
        nearer = known is not None and known != LOCAL and (site == LOCAL or ("://" in self.replicas[lfn] and "://" not in where))
        if known is None or nearer:
            self.replicas[lfn] = where
            self._sites_of[lfn] = site

    def _transformation_catalog(self, value: Map) -> None:
        containers = {self._text(each, "name"): each for each in self._maps(value, "containers")}
        for node in self._maps(value, "transformations"):
            name = self._text(node, "name")
            if not name:
                self._reader.fault(node.line, "a transformation without a name")
                continue
            if "hooks" in node:
                self._reader.remark("hooks", node.line, "hooks have no meaning here: nobody is notified")
            key = key_of(self._text(node, "namespace"), name, self._text(node, "version"))
            places = []
            for site in self._maps(node, "sites"):
                container = self._text(site, "container")
                if container:
                    known = containers.get(container)
                    kind = f"the {self._text(known, 'type')} image {self._text(known, 'image')}" if known is not None else "unknown"
                    words = f"container {container!r} ({kind}) is not used: programs run as they are here"
                    self._reader.remark(f"container {container}", site.line, words)
                installed = self._text(site, "type").lower() != "stageable"
                places.append(Place(self._text(site, "name"), self._text(site, "pfn"), installed, self.profiles(site), container))
            requires = tuple(each for each in self._list(node, "requires") if isinstance(each, str))
            self.transformations.setdefault(key, Transformation(places, self.profiles(node), requires))

    def profiles(self, node: Map) -> Profiles:
        """The profiles of a job, a site or whatever else has any."""
        found: Profiles = {}
        value = node.get("profiles")
        if value is None:
            return found
        if not isinstance(value, Map):
            self._reader.fault(node.line, "profiles must be a mapping of namespaces")
            return found
        for namespace, keys in value.items():
            if keys is None:
                continue
            if not isinstance(keys, Map):
                self._reader.fault(value.line, f"the profiles of namespace {namespace!r} must be a mapping")
                continue
            for key, word in keys.items():
                if isinstance(word, str) or word is None:
                    found[namespace, key] = word or ""
                else:
                    self._reader.fault(keys.line, f"the profile {namespace} {key!r} must be a word or a number")
        return found

    # ── beside ─────────────────────────────────────────────────────────────────────────────────────

    def look_beside(self, inline: Iterable[str]) -> None:
        """Read the catalogs that lie beside the workflow: as pegasus.properties says, else by their default names. For a sub-workflow whose
        planner is told a file of properties, that file and its directory take their place."""
        conf = self._conf or os.path.join(self._reader.directory, PROPERTIES)
        directory = os.path.dirname(conf)
        if self._conf and not os.path.isfile(conf):
            self._reader.remark(f"conf {conf}", 0, f"the properties {conf}, which the planner is told with --conf, do not exist")
        properties = {**_properties(conf, self._reader), **self._properties}
        for kind, (stem, default) in DEFAULT_NAMES.items():
            named = properties.get(f"{stem}.file", "")
            if named:
                places = [os.path.join(each, local_path(expand(named, each))) for each in (directory, self._from) if each]
                self.read(kind, next(filter(os.path.exists, places), places[0]), 0, properties.get(stem, ""))
            elif kind not in inline and os.path.isfile(path := os.path.join(directory, default)):
                self.read(kind, path, 0)

    def read(self, kind: str, path: str, line: int, form: str = "") -> None:
        """A catalog in a file of its own. ``form``: as in the properties (YAML, File, Text …); by its content if not given."""
        path = os.path.normpath(path)
        if not os.path.exists(path):
            words = f"the {_WORDS[kind]} catalog {path} does not exist"
            self._reader.remark(f"no {path}", line, f"{words}; nothing is taken from it")
            if kind != "siteCatalog":
                self._reader.absent.setdefault("programs" if kind == "transformationCatalog" else "inputs", words)
            return
        data = self._reader.read_beside(path, line, f"the {_WORDS[kind]} catalog")
        if data is None:
            return
        text = data.decode("utf-8", "surrogateescape")
        if text.lstrip().startswith("<"):
            self._reader.remark(f"xml {kind}", line, f"the {_WORDS[kind]} catalog {path} is XML, which is not read; convert it to YAML")
        elif form.lower() == "text" or (kind == "transformationCatalog" and re.match(r"(?:\s|#.*\n)*tr\s+\S+\s*\{", text)):
            self._text_transformations(text, path)
        elif form.lower() == "file" or (kind == "replicaCatalog" and not re.search(r"^\s*(replicas|pegasus)\s*:", text, re.MULTILINE)):
            self._text_replicas(text, path)
        else:
            self._read_yaml(kind, data, path)

    def _read_yaml(self, kind: str, data: bytes, path: str) -> None:
        value = Map(1)
        try:
            document = YamlDocument([data])
            for key, _ in document.pairs():
                value[key] = document.value()
        except YamlError as error:
            self._reader.fault(0, f"{path}:{error.line}: {error}")
            return
        self.take(kind, value, 1)

    def _text_replicas(self, text: str, path: str) -> None:
        """``LFN PFN site="…"``, one replica a line."""
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip() or line.lstrip()[0] == "#":
                continue
            try:
                words = split(line.strip())
            except Malformed as error:
                self._reader.fault(0, f"{path}:{number}: {error}")
                continue
            if len(words) < 2:
                self._reader.fault(0, f"{path}:{number}: a replica is written LFN PFN [site=…]")
                continue
            site = next((word.partition("=")[2] for word in words[2:] if word.startswith(("site=", "pool="))), "")
            if "regex=true" in words[2:]:
                self._pattern(words[0], words[1], 0)
            else:
                self._replica(words[0], site, words[1])

    def _text_transformations(self, text: str, path: str) -> None:
        """``tr NS::NAME:VERSION { site NAME { pfn "…" type "…" profile env "K" "V" } }``."""
        key, place, current = "", None, None
        for number, line in enumerate(text.split("\n"), 1):
            try:
                words = split(re.sub(r"(?<=\s)\{|\{$", " { ", line.strip())) if line.strip()[:1] not in ("", "#") else []
            except Malformed as error:
                self._reader.fault(0, f"{path}:{number}: {error}")
                return
            match words:
                case ["tr", name, "{"]:
                    key, place = str(name), None
                    current = self.transformations.setdefault(key, Transformation())
                case ["site", name, "{"] if current is not None:
                    place = Place(str(name), "")
                    current.places.append(place)
                case ["pfn", pfn] if place is not None:
                    place.pfn = pfn
                case ["type", kind] if place is not None:
                    place.installed = kind.lower() != "stageable"
                case ["profile", namespace, name, value] if current is not None:
                    target = place.profiles if place is not None else current.profiles
                    target[namespace, name] = value
                case ["}"]:
                    place, current = None, current if place is not None else None
                case [] | ["arch" | "os" | "osrelease" | "osversion" | "glibc" | "container" | "metadata", *_]:
                    pass
                case _:
                    self._reader.fault(0, f"{path}:{number}: this is no line of a transformation catalog")
                    return

    # ── regular expressions ────────────────────────────────────────────────────────────────────────

    def _pattern(self, text: str, pfn: str, line: int) -> None:
        words = f"the replica pattern {text!r}"
        if len(text) > 1000 or len(re.findall(r"[*+}]", text)) > 3 or len(re.findall(r"[?|]", text)) > 6 or re.search(r"\)[*+?{]", text):
            self._reader.remark("regex", line, f"{words} repeats too much to be tried safely; it is not used")
            return
        try:
            self._patterns.append((re.compile(text), pfn, line))
        except (re.error, RecursionError, OverflowError) as error:
            self._reader.fault(line, f"{words} is no regular expression: {error}")

    def replica(self, lfn: str) -> str:
        """Where a file lies: absolute path or URL; '' if no catalog says."""
        return self._replica_here(lfn) or (self._outer.replica(lfn) if self._outer is not None else "")

    def _replica_here(self, lfn: str) -> str:
        known = self.replicas.get(lfn)
        if known is not None or not self._patterns or len(lfn) > 255:
            return known or ""
        for pattern, pfn, line in self._patterns:
            if self._regex_seconds > REGEX_SECONDS_MAX:
                self._reader.fault(line, f"the patterns of the replica catalog take more than {REGEX_SECONDS_MAX:.0f} seconds to match")
                self._patterns = []
                return ""
            before = time.monotonic()
            match = pattern.fullmatch(lfn)
            self._regex_seconds += time.monotonic() - before
            if match:
                found = match

                def group(reference: re.Match[str], found: re.Match[str] = found) -> str:
                    number = int(reference[1])
                    return (found[number] or "") if number <= found.re.groups else reference[0]

                path = re.sub(r"\[(\d{1,2})\]", group, expand(pfn, self._reader.directory))
                return self._reader.beside(path) or path
        return ""

    # ── parts ──────────────────────────────────────────────────────────────────────────────────────

    def _text(self, node: Map | None, key: str) -> str:
        value = node.get(key) if node is not None else None
        if value is None or isinstance(value, str):
            return value or ""
        self._reader.fault(node.line if node is not None else 0, f"{key!r} must be a word")
        return ""

    def _list(self, node: Map, key: str) -> list[Any]:
        value = node.get(key)
        if value is None or isinstance(value, list):
            return value or []
        self._reader.fault(node.line, f"{key!r} must be a list")
        return []

    def _maps(self, node: Map, key: str) -> Iterator[Map]:
        for value in self._list(node, key):
            if isinstance(value, Map):
                yield value
            else:
                self._reader.fault(node.line, f"each of {key!r} must be a mapping")


_WORDS = {"siteCatalog": "site", "replicaCatalog": "replica", "transformationCatalog": "transformation"}


def expand(text: str, directory: str) -> str:
    """``${PWD}`` is the workflow's directory, other ``${NAME}`` come from the environment, as in Pegasus; names that are not set stay."""
    if "${" not in text:
        return text
    return re.sub(r"\$\{(\w+)\}", lambda match: directory if match[1] == "PWD" else os.environ.get(match[1], match[0]), text)


def _placed(pfn: str, reader: DocumentReader) -> str:
    return (reader.beside(expand(pfn, reader.directory)) or pfn) if "/" in pfn else pfn


def _properties(path: str, reader: DocumentReader) -> dict[str, str]:
    """Java properties; {} if there is no such file."""
    if not os.path.isfile(path):
        return {}
    data = reader.read_beside(path, 0, "the properties")
    text = (data or b"").decode("utf-8", "surrogateescape").replace("\\\n", "")
    found = {}
    for line in text.split("\n"):
        if line.lstrip()[:1] in ("", "#", "!"):
            continue
        if match := re.match(r"\s*([^\s=:]+)\s*[=:\s]\s*(.*?)\s*$", line):
            found[match[1]] = match[2]
    return found
