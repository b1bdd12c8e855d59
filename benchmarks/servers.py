"""Storage servers that a measurement starts on this machine, on free ports of 127.0.0.1: S3 by moto and versitygw, HDFS.

Owns where their programs are found, how they are started, and that they end with the measurement. Knows nothing of what is measured.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from amfs.bench.process import Failed
from amfs.bench.programs import cache_dir
from benchmarks.storage_clients import Spot

_START_SECONDS = 120.0
_HADOOP = "3.5.0"
_VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@latest"
_KEYS = {"access_key_id": "amfskey", "secret_access_key": "amfssecret", "region": "us-east-1"}
BUCKET = "bench"


class Running(NamedTuple):
    """A server, and where its clients find it."""

    title: str
    spot: Spot


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def server(command: list[str], port: int, log: Path, env: Mapping[str, str] | None = None) -> Iterator[int]:
    """Runs until the end of the block; begins when the port answers; gives its process id. Raises Failed."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True)
    try:
        limit = time.monotonic() + _START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > limit:
                    lines = log.read_text(errors="replace").strip().splitlines()
                    raise Failed(f"{command[0]} does not listen: {lines[-1] if lines else 'it said nothing'}") from None
                time.sleep(0.05)
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _run(command: list[str], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def _bucket(endpoint: str) -> Spot:
    """A new bucket of an S3 server. Raises Failed."""
    try:
        import boto3
    except ImportError:
        raise Failed("boto3 is not installed, which makes the bucket (pip install 'moto[s3,server]')") from None
    client = boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id=_KEYS["access_key_id"], aws_secret_access_key=_KEYS["secret_access_key"],
        region_name=_KEYS["region"],
    )  # fmt: skip
    client.create_bucket(Bucket=BUCKET)
    return Spot("s3", f"s3://{BUCKET}", {**_KEYS, "endpoint": endpoint})


@contextlib.contextmanager
def moto(work: Path, install: bool = False) -> Iterator[Running]:
    """An imitation of S3 in Python; objects in its memory. Raises Failed."""
    port = free_port()
    with server([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port, work / "moto.log"):
        yield Running("S3 (moto)", _bucket(f"http://127.0.0.1:{port}"))


def versitygw_program(install: bool = False) -> str | None:
    """On the PATH, where Go puts programs, or in the cache; there it is compiled, if wanted and Go is there. Raises Failed."""
    kept = cache_dir() / "bench" / "bin"
    places = (shutil.which("versitygw"), str(kept / "versitygw"), os.path.expanduser("~/go/bin/versitygw"))
    found = next((place for place in places if place and os.access(place, os.X_OK)), None)
    if found is None and install and shutil.which("go"):
        kept.mkdir(parents=True, exist_ok=True)
        made = _run(["go", "install", _VERSITYGW], {**os.environ, "GOBIN": str(kept)})
        if made.returncode:
            raise Failed(f"versitygw could not be compiled: {made.stderr.strip().splitlines()[-1:]}")
        return str(kept / "versitygw")
    return found


@contextlib.contextmanager
def versitygw(work: Path, install: bool = False) -> Iterator[Running]:
    """S3 over a directory of the disk, in Go. Raises Failed."""
    program = versitygw_program(install)
    if program is None:
        raise Failed("versitygw is not installed (--install compiles it, if Go is there)")
    port, data = free_port(), work / "versitygw"
    data.mkdir()
    env = {**os.environ, "ROOT_ACCESS_KEY": _KEYS["access_key_id"], "ROOT_SECRET_KEY": _KEYS["secret_access_key"]}
    with server([program, "--port", f"127.0.0.1:{port}", "posix", str(data)], port, work / "versitygw.log", env):
        yield Running("S3 (versitygw)", _bucket(f"http://127.0.0.1:{port}"))


def hadoop_jars(install: bool = False) -> str | None:
    """The class path of HDFS's servers, from Maven's local repository; fetched into it if wanted and Maven is there. Raises Failed."""
    place = cache_dir() / "bench" / "hdfs"
    listed = place / f"jars-{_HADOOP}"
    if not listed.is_file() and install and shutil.which("mvn"):
        place.mkdir(parents=True, exist_ok=True)
        wanted = (
            ("org.apache.hadoop", "hadoop-client-minicluster", _HADOOP),
            ("org.apache.hadoop", "hadoop-client-runtime", _HADOOP),
            ("org.slf4j", "slf4j-simple", "1.7.36"),
        )
        each = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
            for group, name, version in wanted
        )
        (place / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>amfs</groupId><artifactId>bench</artifactId><version>1</version>"
            f"<dependencies>{each}</dependencies></project>\n"
        )
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
        made = _run(["mvn", "-q", "-B", "-f", str(place / "pom.xml"), goal, f"-Dmdep.outputFile={listed}"])
        if made.returncode:
            raise Failed(f"Maven could not fetch HDFS: {(made.stdout + made.stderr).strip().splitlines()[:1]}")
    jars = listed.read_text().strip() if listed.is_file() else ""
    return jars if jars and all(os.path.exists(jar) for jar in jars.split(":")) else None


def _hdfs_settings(work: Path, ports: Mapping[str, int], again_ms: int) -> Path:
    """The directory of its configuration."""
    conf = work / "hdfs-conf"
    conf.mkdir()

    def written(name: str, values: Mapping[str, str]) -> None:
        lines = "".join(f"<property><name>{key}</name><value>{value}</value></property>\n" for key, value in values.items())
        (conf / name).write_text(f"<configuration>\n{lines}</configuration>\n")

    at = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    written("core-site.xml", {"fs.defaultFS": f"hdfs://{at['rpc']}", "hadoop.tmp.dir": f"{work}/hdfs-tmp"})
    written(
        "hdfs-site.xml",
        {
            "dfs.replication": "1",
            "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": str(again_ms),
            "dfs.namenode.name.dir": f"file://{work}/hdfs-names",
            "dfs.datanode.data.dir": f"file://{work}/hdfs-data",
            "dfs.namenode.rpc-address": at["rpc"],
            "dfs.namenode.http-address": at["http"],
            "dfs.datanode.address": at["data"],
            "dfs.datanode.http.address": at["data-http"],
            "dfs.datanode.ipc.address": at["data-ipc"],
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.permissions.enabled": "false",
            "dfs.namenode.safemode.extension": "0",
        },
    )
    return conf


@contextlib.contextmanager
def hdfs(work: Path, install: bool = False, again_ms: int = 400) -> Iterator[Running]:
    """A NameNode and one DataNode, each a Java process, with one copy of each block. Raises Failed.

    ``again_ms``: a DataNode that closes a file asks the NameNode whether the block is there, and again so much later. HDFS has 400."""
    java, jars = shutil.which("java"), hadoop_jars(install)
    if java is None or jars is None:
        raise Failed("HDFS is not installed (--install has Maven fetch it, if Java and Maven are there)")
    ports = {name: free_port() for name in ("rpc", "http", "data", "data-http", "data-ipc")}
    conf = _hdfs_settings(work, ports, again_ms)
    command = [
        java, "-Xmx512m", f"-Dhadoop.log.dir={work}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp", f"{conf}:{jars}",
    ]  # fmt: skip
    name_node = "org.apache.hadoop.hdfs.server.namenode.NameNode"
    made = _run([*command, name_node, "-format", "-nonInteractive"])
    if made.returncode:
        raise Failed(f"HDFS could not be formatted: {made.stderr.strip().splitlines()[-1:]}")
    with (
        server([*command, name_node], ports["rpc"], work / "namenode.log"),
        server([*command, "org.apache.hadoop.hdfs.server.datanode.DataNode"], ports["data-http"], work / "datanode.log"),
    ):
        query = f"http://127.0.0.1:{ports['http']}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        limit = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(query, timeout=10) as answer:
                if b'"NumLiveDataNodes" : 1' in answer.read():
                    break
            if time.monotonic() > limit:
                raise Failed("the DataNode of HDFS did not come")
            time.sleep(0.1)
        yield Running("HDFS", Spot("webhdfs", f"webhdfs://127.0.0.1:{ports['http']}/{BUCKET}"))


def make_certificate(place: Path) -> None:
    """An authority, and a certificate of it for localhost: files ``authority``, ``cert`` and ``key``. Raises Failed."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout"]
    (place / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    made = {name: str(place / name) for name in ("authority", "authority.key", "cert", "key", "request", "names")}
    for words in (
        ["req", "-x509", *curve, made["authority.key"], "-days", "2", "-subj", "/CN=test authority", "-out", made["authority"]],
        ["req", *curve, made["key"], "-subj", "/CN=localhost", "-out", made["request"]],
        ["x509", "-req", "-in", made["request"], "-CA", made["authority"], "-CAkey", made["authority.key"], "-CAcreateserial",
         "-days", "2", "-extfile", made["names"], "-out", made["cert"]],
    ):  # fmt: skip
        done = _run(["openssl", *words])
        if done.returncode:
            raise Failed(f"openssl made no certificate: {done.stderr.strip().splitlines()[-1:]}")


def nginx_settings(place: Path, root: Path, port: int) -> Path:
    """Of a web server with TLS that gives the files below ``root``. Raises Failed."""
    make_certificate(place)
    scratch = " ".join(f"{name}_temp_path {place}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (place / "nginx.conf").write_text(
        f"daemon off; pid {place}/pid; error_log stderr; user {pwd.getpwuid(os.getuid()).pw_name};\nevents {{}}\n"
        f"http {{ access_log off; {scratch} server {{ listen 127.0.0.1:{port} ssl; root {root}; autoindex on;\n"
        f"ssl_certificate {place}/cert; ssl_certificate_key {place}/key; }} }}\n"
    )
    return place / "nginx.conf"


@contextlib.contextmanager
def https(work: Path, install: bool = False) -> Iterator[Running]:
    """nginx over the directory ``web``, with a certificate of an authority that nobody else knows. Raises Failed."""
    if shutil.which("nginx") is None:
        raise Failed("nginx is not installed")
    (work / "web").mkdir()
    port = free_port()
    settings = nginx_settings(work, work / "web", port)
    with server(["nginx", "-c", str(settings)], port, work / "nginx.log"):
        yield Running("https (nginx)", Spot("https", f"https://localhost:{port}", {"certificate": f"{work}/authority"}))


SERVERS = {"moto": moto, "versitygw": versitygw, "hdfs": hdfs}
