"""A real SuperLink with TLS and node authentication, behind the proxy config that is shipped."""

import contextlib
import os
import shutil
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from polyclinic.catalog import BUILT_IN
from polyclinic.config.node_file import ServerAddress, load_node_file
from polyclinic.engine.flower import commands
from polyclinic.engine.flower.deploy.certificates import Authority, make_authority
from polyclinic.engine.flower.deploy.checks import check_site
from polyclinic.engine.flower.deploy.folder import INNER_PORT, Deployment
from tests.data.folders import write_site
from tests.engine.flower.deploy.loopback import (
    PROTOBUF,
    answers,
    deployed,
    free_port,
    post,
    process,
    register,
    superlink,
    wait_until,
)

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
ACTIVATE = "/v1/fleet/activate-node"
LIST_RUNS = "/v1/control/list-runs"


@dataclass(frozen=True)
class Loopback:
    """A deployment that runs: the SuperLink's own port, the hospitals' port, Flower's files."""

    folder: Path
    deployment: Deployment
    inner: int
    outer: int
    home: Path

    @property
    def ca(self) -> Path:
        return self.deployment.authority.certificate

    def key(self, name: str) -> Path:
        server = load_node_file(self.deployment.site(name) / "node.toml").server
        assert server.key is not None
        return server.key


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Loopback]:
    """North's key is registered, St. Mary's is not."""
    folder = tmp_path_factory.mktemp("loopback")
    inner, outer = free_port(), free_port()
    deployment = deployed(folder, f"127.0.0.1:{outer}")
    with superlink(deployment, folder, inner) as home, proxy(deployment, folder, inner):
        register(deployment, "north", home)
        yield Loopback(folder, deployment, inner, outer, home)


@contextlib.contextmanager
def proxy(deployment: Deployment, folder: Path, inner: int) -> Iterator[None]:
    """The shipped nginx.conf in a running nginx; only the SuperLink's port is another."""
    if NGINX is None:
        yield
        return
    shipped = (deployment.coordinator / "nginx.conf").read_text()
    assert f"127.0.0.1:{INNER_PORT};" in shipped
    (folder / "shipped.conf").write_text(shipped.replace(f":{INNER_PORT};", f":{inner};"))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user} daemon off; pid {folder}/nginx.pid; events {{}}\n"
        f"http {{ access_log off; {folders} include {folder}/shipped.conf; }}\n"
    )
    command = (NGINX, "-p", str(folder), "-e", f"{folder}/nginx.log", "-c", f"{folder}/nginx.conf")
    published = load_node_file(deployment.site("north") / "node.toml").server.address
    with process(command, folder / "nginx.out", dict(os.environ)):
        url = f"https://{published}/"
        said = (folder / "nginx.out").read_text
        assert wait_until(lambda: answers(url, deployment.authority.certificate)), said()
        yield


def raw_status(running: Loopback, request: bytes, port: int = 0) -> int:
    """The status of an answer to these very bytes, which no library has tidied up."""
    context = ssl.create_default_context(cafile=running.ca)
    with (
        socket.create_connection(("127.0.0.1", port or running.outer), timeout=300) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(request)
        return int(connection.recv(1000).split()[1])


def test_the_control_interface_needs_no_login_so_only_loopback_may_reach_it(running):
    inside = post(f"https://127.0.0.1:{running.inner}{LIST_RUNS}", running.ca)
    assert inside.status_code == 200
    read = commands.superlink("127.0.0.1", running.inner, running.folder / "x", None)
    assert read[read.index("--host") + 1] == "127.0.0.1"


SPELLINGS = [
    LIST_RUNS,
    "/v1/control/start-run",
    "/v1/runtime/pull-task-input",
    "/",
    "/health",
    "/docs",
    "/openapi.json",
    "//v1//control/list-runs",
    "/V1/Control/list-runs",
    "/v1/fleet/../control/list-runs",
    "/v1/fleet/x/../../control/list-runs",
    "/v1/fleet/%2e%2e/control/list-runs",
    "/v1/fleet/..%2fcontrol/list-runs",
    "/v1/fleet/%2e%2e%2fcontrol%2flist-runs",
    "/v1/fleet/%252e%252e/control/list-runs",
    "/v1/fleet/..;/control/list-runs",
    "/v1/fleet/..\\control/list-runs",
    "/v1/control/list-runs/../../fleet/none",
    "/v1/control/list-runs?/v1/fleet/",
    "/v1/control/list-runs#/v1/fleet/",
    "/polyclinic/../v1/control/list-runs",
    "/polyclinic/study.json/../../v1/control/list-runs",
    "http://127.0.0.1/v1/control/list-runs",
]


@needs_nginx
@pytest.mark.parametrize("path", SPELLINGS)
def test_no_spelling_of_the_control_interface_passes_the_proxy(running, path):
    assert raw_status(running, empty_post(path)) in (400, 403, 404)


@needs_nginx
def test_the_same_bytes_would_have_been_answered_without_the_proxy(running):
    assert raw_status(running, empty_post(LIST_RUNS), running.inner) == 200
    assert raw_status(running, empty_post(ACTIVATE)) == 401


def empty_post(path: str) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {PROTOBUF}\r\n"
        f"Accept: {PROTOBUF}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    ).encode()


@needs_nginx
def test_the_proxy_passes_nothing_but_posts_of_a_bounded_size_to_the_fleet(running):
    head = f"{ACTIVATE} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    assert raw_status(running, f"GET {head}\r\n".encode()) == 403
    assert raw_status(running, f"PUT {head}Content-Length: 0\r\n\r\n".encode()) == 403
    assert raw_status(running, f"POST {head}Content-Length: 99999999\r\n\r\n".encode()) == 413


@needs_nginx
def test_the_proxy_speaks_no_old_tls_and_nothing_unencrypted(running):
    with socket.create_connection(("127.0.0.1", running.outer), timeout=300) as plain:
        plain.sendall(b"POST /v1/fleet/activate-node HTTP/1.1\r\nHost: a\r\n\r\n")
        assert plain.recv(1000).split()[1] == b"400"
    text = (running.deployment.coordinator / "nginx.conf").read_text()
    assert "ssl_protocols TLSv1.2 TLSv1.3;" in text


@needs_nginx
def test_deploy_check_finds_nothing_wrong_with_the_shipped_files(running):
    folder = running.deployment.site("north")
    write_site(folder / "data", cases=6)
    findings = list(check_site(load_node_file(folder / "node.toml"), BUILT_IN))
    assert [str(each) for each in findings if not each.good] == []
    assert "✓ known: the coordinator knows this site's key" in map(str, findings)


def test_deploy_check_warns_of_a_superlink_without_the_proxy(running, tmp_path):
    text = (running.deployment.site("north") / "node.toml").read_text()
    shutil.copytree(running.deployment.site("north"), tmp_path / "north")
    file = tmp_path / "north" / "node.toml"
    file.write_text(text.replace(f":{running.outer}", f":{running.inner}"))
    wrong = {each.about for each in check_site(load_node_file(file), BUILT_IN) if not each.good}
    assert {"control interface", "study"} <= wrong


@contextlib.contextmanager
def supernode(running: Loopback, name: str, server: ServerAddress) -> Iterator[Path]:
    """A running SuperNode of a site; gives its log."""
    log = running.folder / f"{name}-{free_port()}.log"
    home = running.folder / f"home-of-{log.stem}"
    command = commands.supernode(name, server, free_port())
    with process(command, log, commands.environment(home)):
        yield log


def says(log: Path, *texts: str) -> bool:
    said = log.read_text()
    return any(text in said for text in texts)


def test_a_real_supernode_with_a_registered_key_takes_part(running):
    """Through the proxy, where nginx is installed."""
    address = f"127.0.0.1:{running.outer if NGINX else running.inner}"
    server = ServerAddress(address=address, ca=running.ca, key=running.key("north"))
    link = running.folder / "superlink.log"
    before = link.read_text().count("Activated node_id")
    with supernode(running, "north", server) as log:
        joined = wait_until(lambda: link.read_text().count("Activated node_id") > before)
        assert joined, log.read_text()


def test_real_supernodes_that_are_not_known_are_refused(running, tmp_path):
    port = running.outer if NGINX else running.inner
    address = f"127.0.0.1:{port}"
    make_authority(Authority(tmp_path / "ca.crt", tmp_path / "ca.key"), "others")
    unknown = ServerAddress(address=address, ca=running.ca, key=running.key("St. Mary"))
    other = ServerAddress(address=address, ca=tmp_path / "ca.crt", key=running.key("north"))
    with (
        supernode(running, "St. Mary", unknown) as stranger,
        supernode(running, "north", other) as deceived,
        keyless(running, address) as nobody,
    ):
        assert wait_until(lambda: says(stranger, "2004")), stranger.read_text()
        assert wait_until(lambda: says(deceived, "CERTIFICATE_VERIFY_FAILED"))
        assert wait_until(lambda: says(nobody, "2001")), nobody.read_text()


@contextlib.contextmanager
def keyless(running: Loopback, address: str) -> Iterator[Path]:
    log = running.folder / "nobody.log"
    link = ("--superlink", address, "--root-certificates", str(running.ca))
    command = (*commands.SUPERNODE, *link, "--port", str(free_port()))
    with process(command, log, commands.environment(running.folder / "nobody")):
        yield log
