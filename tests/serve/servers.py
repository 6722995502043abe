"""A model's server on a real socket, in a thread."""

from contextlib import contextmanager
from threading import Thread

import httpx

from polyclinic.serve.web import Limits, application, bound, url_of, web_server

LIMITS = Limits(megabytes=1.0)


@contextmanager
def served(model, limits=LIMITS, **options):
    """A client of a running server."""
    server = web_server(application(model, limits, **options), limits)
    with bound("127.0.0.1", 0) as listening:
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            with httpx.Client(base_url=url_of(listening), timeout=60, trust_env=False) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()
