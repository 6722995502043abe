"""The app that Flower starts at a site for every message: it hands the payload to the worker.

Nothing here may import torch: a process that lives for one message should start at once.
"""

import os
import socket
import time
from contextlib import chdir
from pathlib import Path
from typing import BinaryIO, cast

from flwr.app import Context
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp

from polyclinic.engine.flower.carrier import from_records, receive, send, to_records

SOCKET = "POLYCLINIC_WORKER"  # names the worker's socket in the environment
START_UP = 120.0  # seconds that a worker may take to begin listening

app = ClientApp()


@app.query()
def forward(message: FlowerMessage, context: Context) -> FlowerMessage:  # noqa: ARG001
    """The worker's reply to a message."""
    reply = ask_worker(Path(os.environ[SOCKET]), from_records(message.content))
    return FlowerMessage(to_records(reply), reply_to=message)


def ask_worker(path: Path, payload: bytes) -> bytes:
    """Send a payload to the worker and wait for its reply, however long it trains."""
    with _connected(path) as line, cast(BinaryIO, line.makefile("rwb")) as stream:
        send(stream, payload)
        try:
            return receive(stream)
        except EOFError:
            raise ConnectionError("the site's worker died while it worked on this") from None


def _connected(path: Path) -> socket.socket:
    """A line to the worker, which may just be starting."""
    end = time.monotonic() + START_UP
    while True:
        line = socket.socket(socket.AF_UNIX)
        try:
            # From inside its folder: the system allows a socket's path only 100 characters.
            with chdir(path.parent):
                line.connect(path.name)
        except OSError:
            line.close()
            if time.monotonic() > end:
                raise ConnectionError("the site's worker is not there") from None
            time.sleep(0.2)
        else:
            return line
