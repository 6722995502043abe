"""A stand-in for the coordinator's proxy: the same answers, and whatever faults a test wants."""

import contextlib
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import time


@dataclass
class StandIn:
    """What it answers; `port` is where it listens."""

    port: int = 0
    published: bytes = b"{}"
    control: int = 403
    status: int = 200
    late: float = 0.0  # seconds that its clock is behind ours
    dated: bool = True


@contextlib.contextmanager
def stand_in(certificates: Path | None, host: str = "127.0.0.1") -> Iterator[StandIn]:
    """Serves at this address with server.crt and server.key of the folder, or in the open."""
    answers = StandIn()
    server = ThreadingHTTPServer((host, 0), _handler(answers))
    answers.port = server.server_port
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if certificates:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield answers
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(answers: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(answers.status, answers.published)

        def do_POST(self) -> None:
            self._answer(answers.control, b"")

        def _answer(self, status: int, text: bytes) -> None:
            self.send_response_only(status)
            if answers.dated:
                self.send_header("Date", formatdate(time() - answers.late, usegmt=True))
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    return Handler
