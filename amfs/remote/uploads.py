"""Uploads that never ended: in parts on S3 servers, and as files that have no name of their own yet on others.

Owns which there are, and their removal. obstore cannot list uploads, so the two requests are made and signed here (AWS Signature Version
4). Must not know: who began them. No storage keeps a mark of that; only their age tells whether somebody may still be at work.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import http.client
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit
from xml.etree import ElementTree

from amfs.remote.place import Kind, RemoteError
from amfs.remote.settings import s3_config
from amfs.remote.systems import System, cut

OLD_S = 24 * 3600.0
_TIMEOUT_S = 30.0
_EMPTY = hashlib.sha256(b"").hexdigest()


class Upload(NamedTuple):
    key: str
    number: str  # of S3; else the key of the unfinished file
    began: float  # seconds since 1970; of a file when it was written last


class Uploads:
    """Those in the bucket of ``url``. All methods raise RemoteError."""

    def __init__(self, url: str, given: Mapping[str, Any]) -> None:
        parts = urlsplit(url, allow_fragments=False)
        self._top = f"{parts.scheme}://{parts.netloc}/"
        self._config = config = s3_config(given)
        if parts.scheme not in ("s3", "s3a"):
            raise RemoteError(Kind.UNSUPPORTED, url, "it tells nothing of unfinished uploads; Google and Azure remove them by themselves")
        if not config.get("access_key_id") or config.get("skip_signature") == "true":
            raise RemoteError(Kind.DENIED, url, "no keys were found: in the environment, ~/.aws, or --storage")
        bucket, by_host = parts.netloc, config["virtual_hosted_style_request"] == "true"
        at = urlsplit(config.get("endpoint") or f"https://s3.{config['region']}.amazonaws.com")
        self._host = f"{bucket}.{at.netloc}" if by_host and "endpoint" not in config else at.netloc
        self._path = at.path.rstrip("/") + ("/" if by_host else f"/{bucket}/")
        self._kind = http.client.HTTPSConnection if at.scheme == "https" else http.client.HTTPConnection

    def url(self, upload: Upload) -> str:
        """For people."""
        return self._top + upload.key

    def list(self, prefix: str) -> list[Upload]:
        """All whose keys begin with ``prefix``."""
        found: list[Upload] = []
        query = {"uploads": "", "prefix": prefix, "encoding-type": "url"}
        while True:
            answer = ElementTree.fromstring(self._ask("GET", "", query))
            for each in answer.iterfind("{*}Upload"):
                began = datetime.datetime.fromisoformat(_text(each, "Initiated").replace("Z", "+00:00"))
                found.append(Upload(unquote(_text(each, "Key")), _text(each, "UploadId"), began.timestamp()))
            if _text(answer, "IsTruncated") != "true":
                return [one for one in found if one.key.startswith(prefix)]  # some servers do not look at the prefix
            query["key-marker"] = unquote(_text(answer, "NextKeyMarker"))
            query["upload-id-marker"] = _text(answer, "NextUploadIdMarker")

    def of(self, keys: Collection[str], prefix: str) -> Sequence[Upload]:
        """Those of these keys, all of which begin with ``prefix``."""
        return [one for one in self.list(prefix) if one.key in keys]

    def remove(self, upload: Upload) -> None:
        self._ask("DELETE", upload.key, {"uploadId": upload.number})

    def _ask(self, method: str, key: str, query: Mapping[str, str]) -> bytes:
        path = quote(self._path + key, safe="/~")
        asked = "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in sorted(query.items()))
        connection = self._kind(self._host, timeout=_TIMEOUT_S)
        try:
            connection.request(method, f"{path}?{asked}", headers=self._signed(method, path, asked))
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise RemoteError(Kind.UNREACHABLE, self._top + key, str(error)) from None
        finally:
            connection.close()
        if answer.status == 404 and method == "DELETE":
            return b""  # somebody else has ended it
        if answer.status >= 300:
            code = found[1].decode() if (found := re.search(rb"<Code>(\w+)</Code>", text)) else f"status {answer.status}"
            kind = Kind.NO_PLACE if code == "NoSuchBucket" else Kind.DENIED if answer.status in (401, 403) else Kind.OTHER
            raise RemoteError(kind, self._top + key, "" if kind is Kind.NO_PLACE else code)
        return text

    def _signed(self, method: str, path: str, query: str) -> dict[str, str]:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": self._host, "x-amz-content-sha256": _EMPTY, "x-amz-date": now}
        if token := self._config.get("session_token"):
            headers["x-amz-security-token"] = token
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        request = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{_EMPTY}"
        scope = f"{now[:8]}/{self._config['region']}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = f"AWS4{self._config['secret_access_key']}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        credential = f"{self._config['access_key_id']}/{scope}"
        return {**headers, "authorization": f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"}


class UnfinishedFiles:
    """Those on a storage where a file is renamed when it is whole. All methods raise RemoteError."""

    def __init__(self, system: System) -> None:
        self._system = system

    def url(self, upload: Upload) -> str:
        """For people."""
        return self._system.url(upload.number)

    def list(self, prefix: str) -> list[Upload]:
        """All of files whose keys begin with ``prefix``. One whose time the storage does not tell is always new."""
        unfinished = self._system.unfinished(self._system.beginning(prefix))
        found = [Upload(key, one.key, one.mtime / 1e9 if one.mtime else float("inf")) for one, key in unfinished]
        return [one for one in found if one.key.startswith(cut(prefix))]

    def of(self, keys: Collection[str], prefix: str) -> Sequence[Upload]:
        """Those of these keys, all of which begin with ``prefix``."""
        begun = {cut(key) for key in keys}
        return [one for one in self.list(prefix) if one.key in begun]

    def remove(self, upload: Upload) -> None:
        try:
            self._system.delete(upload.number)
        except RemoteError as error:
            if error.kind is not Kind.MISSING:  # it is whole now, or somebody else has removed it
                raise


def older(found: Iterable[Upload], now: float, age_s: float) -> list[Upload]:
    """Those that began so long ago."""
    return [one for one in found if now - one.began >= age_s]


def _text(element: ElementTree.Element, name: str) -> str:
    return element.findtext(f"{{*}}{name}") or ""
