"""The worker of a site: a process that outlives messages, with torch, data and network in memory.

It listens on a socket in the site's state folder, which only the site's own user may open.
"""

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from polyclinic.catalog import installed
from polyclinic.config.node_file import load_node_file
from polyclinic.engine.flower.carrier import receive, send
from polyclinic.engine.flower.processes import socket_path
from polyclinic.engine.flower.site_service import SiteService

log = logging.getLogger("polyclinic.site")


def main() -> None:  # pragma: no cover (in a process of its own)
    """Work for the site whose node.toml is the only argument, until the process is ended."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s worker: %(message)s")
    site = load_node_file(sys.argv[1], installed().kind)
    service = SiteService(site, installed(site.allow.packages))
    with listening(socket_path(site.state)) as door:
        log.info("site %s is ready", site.name)
        while True:
            serve(door, service)


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A socket that takes calls one after another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    before = os.umask(0o077)
    with socket.socket(socket.AF_UNIX) as door:
        try:
            with chdir(path.parent):
                door.bind(path.name)
        finally:
            os.umask(before)
        door.listen()
        yield door


def serve(door: socket.socket, service: SiteService) -> None:
    """Take one call; a caller that hangs up early, because it was killed, changes nothing."""
    line, _ = door.accept()
    try:
        with line, cast(BinaryIO, line.makefile("rwb")) as stream:
            send(stream, service.respond(receive(stream)))
    except (EOFError, OSError) as error:
        log.warning("nobody waits for the reply any more: %s", error)


if __name__ == "__main__":  # pragma: no cover
    main()
