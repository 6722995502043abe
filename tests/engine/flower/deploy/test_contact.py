import socket
import threading

import pytest

from polyclinic.config.node_file import ServerAddress
from polyclinic.engine.flower.deploy import contact
from polyclinic.engine.flower.deploy.certificates import (
    Authority,
    make_authority,
    make_certificate,
)
from polyclinic.engine.flower.deploy.contact import Unreachable, ask
from tests.engine.flower.deploy.stand_in import stand_in


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    authority = Authority(folder / "ca.crt", folder / "ca.key")
    make_authority(authority, "consortium")
    make_certificate(authority, folder / "server.crt", folder / "server.key", ["localhost"], 9)
    return folder


def server(keys, host: str, port: int) -> ServerAddress:
    return ServerAddress(address=f"{host}:{port}", ca=keys / "ca.crt", key=keys / "none")


@pytest.fixture
def silent():
    """A port where somebody listens and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_an_answer_brings_status_text_certificate_and_time(keys):
    with stand_in(keys) as coordinator:
        coordinator.published = b"hello"
        answer = ask(server(keys, "localhost", coordinator.port), "/")
    assert (answer.status, answer.text) == (200, b"hello")
    assert answer.certificate is not None
    assert answer.ahead is not None
    assert abs(answer.ahead) < 2


def test_an_endless_answer_is_cut(keys):
    with stand_in(keys) as coordinator:
        coordinator.published = b"x" * 300_000
        answer = ask(server(keys, "localhost", coordinator.port), "/")
    assert len(answer.text) == contact.LONGEST_ANSWER


def test_an_unknown_name_is_a_matter_of_dns(keys):
    with pytest.raises(Unreachable, match="is not known here") as caught:
        ask(server(keys, "nowhere.invalid", 443), "/")
    assert "DNS" in caught.value.advice


def test_a_server_that_says_nothing_is_not_waited_for_for_ever(keys, silent, monkeypatch):
    monkeypatch.setattr(contact, "SECONDS", 0.2)
    with pytest.raises(Unreachable, match=r"no answer within 0\.2 s") as caught:
        ask(server(keys, "127.0.0.1", silent), "/")
    assert "outgoing TCP" in caught.value.advice


def test_a_port_without_tls_is_told(keys):
    with stand_in(None) as coordinator, pytest.raises(Unreachable) as caught:
        ask(server(keys, "127.0.0.1", coordinator.port), "/")
    assert "does not speak TLS" in caught.value.advice


def test_an_expired_certificate_is_told(keys, tmp_path):
    authority = Authority(keys / "ca.crt", keys / "ca.key")
    make_certificate(authority, tmp_path / "server.crt", tmp_path / "server.key", ["a"], days=0)
    with stand_in(tmp_path) as coordinator, pytest.raises(Unreachable, match="expired") as caught:
        ask(server(keys, "localhost", coordinator.port), "/")
    assert "the coordinator must renew it" in caught.value.advice


def test_the_hospitals_own_proxy_is_used_as_the_supernode_uses_it(keys, monkeypatch):
    asked = []

    def refuse(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            asked.append(connection.recv(1000).split(b"\r\n")[0])
            connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{listener.getsockname()[1]}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        thread = threading.Thread(target=refuse, args=(listener,))
        thread.start()
        with pytest.raises(Unreachable, match="your proxy refuses"):
            ask(server(keys, "fl.example.org", 443), "/")
        thread.join()
    assert asked == [b"CONNECT fl.example.org:443 HTTP/1.1"]
