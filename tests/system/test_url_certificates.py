"""Web servers with certificates of our own: which are trusted, and what people are told of others. obstore and fsspec agree."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from amfs.errors import UsageError
from amfs.remote.opening import Storages
from amfs.remote.place import Kind, RemoteError
from amfs.remote.settings import Settings


def made(place: Path, *, authority: bool = False, days: int = 1) -> Path:
    """A certificate that signs itself, with its key, for 127.0.0.1. ``days``: until it expires."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(end - datetime.timedelta(days=3)).not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (place / "certificate").write_bytes(certificate.public_bytes(pem))
    (place / "both").write_bytes(secret + certificate.public_bytes(pem))
    return place / "certificate"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *about: object) -> None:
        pass


@contextmanager
def serving(certificate: Path) -> Iterator[int]:
    """The port of a server that shows it."""

    def handler(*given: object) -> Quiet:
        return Quiet(*given, directory=str(certificate.parent))  # type: ignore[arg-type]

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.with_name("both"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *about: None  # type: ignore[method-assign]  # of those who do not trust it
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def refusal(storages: Storages, url: str) -> str:
    with pytest.raises(RemoteError) as caught:
        storages.matching(url)
    assert caught.value.kind is Kind.UNTRUSTED
    return caught.value.words


def test_a_certificate_that_is_given_is_trusted_for_its_host(tmp_path: Path) -> None:
    certificate = made(tmp_path)
    with serving(certificate) as port:
        storages = Storages(Settings({"https://": {"certificate": str(certificate)}}))
        assert storages.matching(f"https://127.0.0.1:{port}/certificate")[0].found.size == certificate.stat().st_size
        assert {one.name for one in storages.matching(f"https://127.0.0.1:{port}/")} == {"certificate", "both"}
        for path in ("certificate", ""):
            assert refusal(storages, f"https://localhost:{port}/{path}") == "it is for another host"
            assert "the setting 'certificate'" in refusal(Storages(Settings()), f"https://127.0.0.1:{port}/{path}")


def test_what_is_wrong_with_a_certificate_is_said(tmp_path: Path) -> None:
    certificate = made(tmp_path, authority=True)
    settings = Settings({"https://": {"certificate": str(certificate)}})
    with serving(certificate) as port:
        assert "it is that of an authority" in refusal(Storages(settings), f"https://127.0.0.1:{port}/certificate")
    made(tmp_path, days=-1)
    with serving(certificate) as port:
        for path in ("certificate", ""):
            assert refusal(Storages(settings), f"https://127.0.0.1:{port}/{path}") == "it has expired"
    certificate.write_text("-----BEGIN CERTIFICATE-----\nMII")
    for path in ("certificate", ""):
        with pytest.raises(UsageError, match="holds no certificates"):
            Storages(settings).matching(f"https://127.0.0.1:1/{path}")
