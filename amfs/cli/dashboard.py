"""``amfs dashboard``: the page in a browser. Owns the address and its token; ``live.web`` serves."""

from __future__ import annotations

import os
import secrets
import socket
import sys

import click

from amfs.cli.completion import session_names
from amfs.errors import SystemSetupError, UsageError


@click.command()
@click.argument("name", required=False, shell_complete=session_names)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1 (default: a free one).")
@click.option("--every", type=click.FloatRange(min=0.2), default=1.0, metavar="SECONDS", help="Between two frames (default 1).")
def dashboard(name: str | None, port: int, every: float) -> int:
    """Serve a page with runs, stages, nodes, transfers, tasks at work and failures, on 127.0.0.1 only; prints its address.

    NAME is a session; without it, all runs and sessions of this user on this host. On another machine: ssh -L PORT:127.0.0.1:PORT HOST.
    /metrics with the same token is for Prometheus: set AMFS_DASHBOARD_TOKEN to have one that stays. Ctrl-C ends it.
    """
    try:
        from amfs.live.web import Dashboard, serve
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        raise SystemSetupError(f"amfs dashboard needs the package {missing}: pip install 'amfs-hpc[dashboard]'") from None
    from amfs.live.reader import Reader

    token = os.environ.get("AMFS_DASHBOARD_TOKEN") or secrets.token_urlsafe(18)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as sock, Reader(name) as reader:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError as error:
            raise UsageError(f"--port {port}: {error.strerror}; without it a free one is taken") from None
        sock.listen(64)
        served = Dashboard(reader, token, every)
        click.echo(f"http://127.0.0.1:{sock.getsockname()[1]}/?token={token}")
        sys.stdout.flush()
        try:
            serve(served, sock)
        finally:
            served.close()
    return 0
