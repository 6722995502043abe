"""Asking the coordinator from a site as its SuperNode would: same authority, same proxies."""

import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import httpx
from cryptography import x509

from polyclinic.config.node_file import ServerAddress

LONGEST_ANSWER = 65536
SECONDS = 15.0
_EXPIRED = (9, 10)  # OpenSSL's numbers: not yet valid, no longer valid
_OTHER_NAME = (62, 64)


@dataclass(frozen=True)
class Answer:
    """What came back: status, text, the certificate, and how far our clock is ahead in seconds."""

    status: int
    text: bytes
    certificate: x509.Certificate | None
    ahead: float | None


class Unreachable(Exception):
    """Why there was no answer, and what to do about it."""

    def __init__(self, text: str, advice: str) -> None:
        super().__init__(text)
        self.advice = advice


def ask(server: ServerAddress, path: str, method: str = "GET") -> Answer:
    """The server's answer to one request; Unreachable where there is none to trust."""
    scheme = "http" if server.insecure else "https"
    try:
        # httpx is what Flower's SuperNode uses, so HTTPS_PROXY and NO_PROXY mean the same here.
        context = True if server.insecure else ssl.create_default_context(cafile=server.ca)
        before = time.time()
        with (
            httpx.Client(verify=context, timeout=SECONDS) as client,
            client.stream(method, f"{scheme}://{server.address}{path}") as response,
        ):
            ahead = _ahead(response.headers.get("Date"), (before + time.time()) / 2)
            certificate = _certificate(response)  # now: the connection may end with the text
            text = next(response.iter_bytes(LONGEST_ANSWER), b"")[:LONGEST_ANSWER]
            return Answer(response.status_code, text, certificate, ahead)
    except httpx.TransportError as error:
        raise _explained(error, server) from error
    except OSError as error:
        advice = "copy the certificate that the coordinator gave you, and correct server.ca"
        raise Unreachable(f"cannot use the authority {server.ca}: {error}", advice) from error


def _ahead(date: str | None, now: float) -> float | None:
    """Seconds that our clock is ahead of the server's, whose header leaves out the fraction."""
    try:
        return now - parsedate_to_datetime(date or "").timestamp() - 0.5
    except ValueError:
        return None


def _certificate(response: httpx.Response) -> x509.Certificate | None:
    encrypted = response.extensions["network_stream"].get_extra_info("ssl_object")
    raw = encrypted.getpeercert(True) if encrypted else None
    return x509.load_der_x509_certificate(raw) if raw else None


def _explained(error: httpx.TransportError, server: ServerAddress) -> Unreachable:
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _untrusted(cause, server)
    ask_firewall = f"ask your network team to allow outgoing TCP to {server.address}"
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        text = f"the name {server.host} is not known here"
        return Unreachable(text, "correct server.address, or ask your network team about DNS")
    if isinstance(error, httpx.ProxyError):
        return Unreachable(f"your proxy refuses: {error}", f"{ask_firewall} through the proxy")
    if isinstance(error, httpx.TimeoutException):
        return Unreachable(f"no answer within {SECONDS:g} s", ask_firewall)
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        advice = "correct the port in server.address: what listens there does not speak TLS"
        return Unreachable(f"no encrypted connection: {error}", advice)
    advice = f"{ask_firewall}; if it is allowed, ask the coordinator whether the proxy runs"
    return Unreachable(f"no connection: {error}", advice)


def _untrusted(error: ssl.SSLCertVerificationError, server: ServerAddress) -> Unreachable:
    if error.verify_code in _EXPIRED:
        advice = "check this machine's date; if it is right, the coordinator must renew it"
    elif error.verify_code in _OTHER_NAME:
        advice = "correct server.address, or let the coordinator make a certificate for this name"
    else:
        advice = (
            f"compare {server.ca} with the coordinator's; if they are equal, something on the way "
            "opens the encryption: ask your network team to exempt this server from TLS inspection"
        )
    return Unreachable(f"the server's certificate is refused: {error.verify_message}", advice)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
