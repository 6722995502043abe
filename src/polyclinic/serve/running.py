"""Running the web server on a socket of its own until it is told to stop."""

import signal
import socket

import uvicorn
from starlette.applications import Starlette

from polyclinic.serve.web import Limits


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there (port 0 is any free one); a ValueError in words if it cannot."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except (OSError, OverflowError) as error:
        raise ValueError(f"{host}, port {port} cannot be served: {error}") from error


def web_server(app: Starlette, limits: Limits) -> uvicorn.Server:
    """The server of an application; `run(sockets=[…])` serves until `should_exit`."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=max(1, round(limits.seconds)),
    )
    return uvicorn.Server(config)


def run_until_ended(server: uvicorn.Server, listening: socket.socket) -> None:
    """Serve until Ctrl-C or a plain `kill`, and return then."""
    # The server raises the signal once more when it is done, for whoever handled it before.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    server.run(sockets=[listening])


def url_of(listening: socket.socket) -> str:
    """The address under which a socket can be reached."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
