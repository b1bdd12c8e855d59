"""The page in a browser: one reader for all who look, its frames as server-sent events, pages of tasks, metrics.

Owns the addresses, the token and the pace. While nobody looks nothing is read. Decides nothing about runs or nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from amfs.display.page import HELPERS, STYLE
from amfs.display.summary import json_safe
from amfs.errors import AmfsError
from amfs.vocabulary.live import Frame, Page

ASSETS = Path(__file__).parent / "assets"
_FILES = {"uplot.js": "uPlot.iife.min.js", "uplot.css": "uPlot.min.css", "dashboard.js": "dashboard.js", "dashboard.css": "dashboard.css"}
_TYPES = {".js": "text/javascript", ".css": "text/css"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",  # the token is in the address
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
FRESH_S = 0.5  # a frame that is no older serves the next asker

BODY = (ASSETS / "dashboard.html").read_text(encoding="utf-8")


class Source(Protocol):
    """Where frames come from: ``live.reader.Reader``."""

    def frame(self) -> Frame: ...
    def page(self, at_work: int = 0, failed: int = 0, start: int = 0) -> Page: ...


def encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a name that is not UTF-8
        return msgspec.json.encode(json_safe(msgspec.to_builtins(value)))


class Dashboard:
    """Serves ``source`` to those who know ``token``; a frame each ``every`` seconds while somebody looks."""

    def __init__(self, source: Source, token: str, every: float = 1.0) -> None:
        self._source = source
        self._token = token
        self._every = every
        self._thread = ThreadPoolExecutor(1, "amfs reader")  # a reader is used from one thread
        self._frame: Frame | None = None
        self._data = b""
        self._read_at = -1e9
        self.reads = 0
        self.closing = False
        self.app = Starlette(
            routes=[
                Route("/", self.index),
                Route("/events", self.events),
                Route("/page", self.page),
                Route("/metrics", self.metrics),
                Route("/assets/{name}", self.asset),
            ]
        )

    def _allowed(self, request: Request) -> bool:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = request.query_params.get("token", "") or bearer
        return hmac.compare_digest(given.encode(), self._token.encode())

    def _refusal(self) -> Response:
        return PlainTextResponse("The address lacks its token: use the one that 'amfs dashboard' has printed.\n", 403, HEADERS)

    async def index(self, request: Request) -> Response:
        if not self._allowed(request):
            return self._refusal()
        head = "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>amfs</title>"
        head += "<meta name='viewport' content='width=device-width,initial-scale=1'><link rel='icon' href='data:,'>"
        head += f"<link rel='stylesheet' href='assets/uplot.css'><style>{STYLE}</style><link rel='stylesheet' href='assets/dashboard.css'>"
        scripts = "".join(f"<script src='assets/{name}'></script>" for name in ("helpers.js", "uplot.js", "dashboard.js"))
        return HTMLResponse(f"{head}</head><body>{BODY}{scripts}</body></html>", headers=HEADERS)

    async def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name == "helpers.js":
            return Response(HELPERS, media_type="text/javascript", headers=HEADERS)
        if name not in _FILES:
            return PlainTextResponse("there is no such file\n", 404, HEADERS)
        return FileResponse(ASSETS / _FILES[name], media_type=_TYPES[Path(name).suffix], headers=HEADERS)

    def _read(self) -> None:
        """Read a frame unless there is a fresh one; in the reader's thread."""
        now = time.monotonic()
        if now - self._read_at < min(FRESH_S, self._every / 2):
            return
        try:
            self._frame = self._source.frame()
        except (AmfsError, OSError) as error:
            self._frame = Frame(time.time(), notes=[str(error)])
        self._read_at = now
        self.reads += 1
        self._data = encoded(self._frame)

    async def _fresh(self) -> bytes:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._read)
        return self._data

    async def events(self, request: Request) -> Response:
        if not self._allowed(request):
            return self._refusal()

        async def stream() -> AsyncIterator[bytes]:
            while not self.closing:
                begun = time.monotonic()
                data = await self._fresh()
                yield b"data: " + data + b"\n\n"
                due = begun + self._every
                while not self.closing and (left := due - time.monotonic()) > 0:
                    await asyncio.sleep(min(left, 0.2))

        return StreamingResponse(stream(), media_type="text/event-stream", headers=HEADERS)

    async def page(self, request: Request) -> Response:
        if not self._allowed(request):
            return self._refusal()
        try:
            counts = [max(0, int(request.query_params.get(name, "0"))) for name in ("at_work", "failed", "start")]
        except ValueError:
            return PlainTextResponse("at_work, failed and start are numbers\n", 400, HEADERS)
        try:
            page = await asyncio.get_running_loop().run_in_executor(self._thread, lambda: self._source.page(*counts))
        except (AmfsError, OSError) as error:
            return PlainTextResponse(f"{error}\n", 503, HEADERS)
        return Response(encoded(page), media_type="application/json", headers=HEADERS)

    async def metrics(self, request: Request) -> Response:
        if not self._allowed(request):
            return self._refusal()
        from amfs.live.metrics import CONTENT_TYPE, text_of

        await self._fresh()
        assert self._frame is not None
        return Response(text_of(self._frame), headers={**HEADERS, "Content-Type": CONTENT_TYPE})

    def close(self) -> None:
        """No more frames."""
        self.closing = True
        self._thread.shutdown(wait=False, cancel_futures=True)


def serve(dashboard: Dashboard, sock: object) -> None:
    """Until a signal ends it. ``sock``: a bound socket, listening on loopback."""
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: object) -> None:
            dashboard.closing = True  # else it would wait for those who look
            super().handle_exit(sig, frame)  # type: ignore[arg-type]

    config = uvicorn.Config(dashboard.app, ws="none", log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=2)
    with contextlib.suppress(KeyboardInterrupt):
        Server(config).run([sock])  # type: ignore[list-item]
