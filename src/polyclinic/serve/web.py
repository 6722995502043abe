"""A model over HTTP: `POST /predict`, `GET /health`, `GET /card`, and a page for people."""

import asyncio
import signal
import socket
import traceback
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive

from polyclinic import __version__
from polyclinic.data.errors import UnreadableError
from polyclinic.predict.card import card_page, card_text
from polyclinic.predict.model import Model
from polyclinic.predict.pages import rendered
from polyclinic.serve.answers import ANSWERS, Answer, Wish, answer
from polyclinic.serve.guard import Guard

MEGABYTE = 10**6
WAITING = 16  # images at a time, the one being predicted included
# Pages hold all they need; what a package's maker wrote must not run here.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
NOSNIFF = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


@dataclass(frozen=True)
class Limits:
    """How much and how long one request may take."""

    megabytes: float = 64.0
    seconds: float = 60.0


def application(
    model: Model, limits: Limits, *, token: str | None = None, flips: bool = True
) -> Starlette:
    """The model as an application that an ASGI server runs."""
    service = Service(model, limits, Wish(flips=flips), bool(token))

    @asynccontextmanager
    async def alive(_: Starlette) -> AsyncIterator[None]:
        yield
        service.pool.shutdown(wait=False, cancel_futures=True)

    return Starlette(
        routes=[
            Route("/", service.page),
            Route("/health", service.health),
            Route("/card", service.card),
            Route("/predict", service.predict, methods=["POST"]),
        ],
        middleware=[Middleware(Guard, token=token)],
        exception_handlers={
            HTTPException: _told,
            UnreadableError: _unreadable,
            ClientDisconnect: _gone,
        },
        lifespan=alive,
    )


class Service:
    """The answers; one image is predicted at a time, by all threads of onnxruntime."""

    def __init__(self, model: Model, limits: Limits, wish: Wish, secret: bool) -> None:
        self.model, self.limits, self.wish, self.secret = model, limits, wish, secret
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="predict")
        self.waiting = 0

    async def health(self, _: Request) -> Response:
        """Say that the server lives and how many images it has to do."""
        told = {"status": "ok", "waiting": self.waiting, "version": __version__}
        return JSONResponse(told, headers=NOSNIFF)

    async def page(self, _: Request) -> Response:
        """Give the upload page."""
        text = rendered("upload.html", megabytes=self.limits.megabytes, secret=self.secret)
        return HTMLResponse(text, headers=PAGE_HEADERS | NOSNIFF)

    async def card(self, request: Request) -> Response:
        """Give the model card as a page, or with `?as=markdown` in Markdown."""
        if request.query_params.get("as") == "markdown":
            return PlainTextResponse(card_text(self.model.facts), media_type="text/markdown")
        return HTMLResponse(card_page(self.model.facts), headers=PAGE_HEADERS | NOSNIFF)

    async def predict(self, request: Request) -> Response:
        """Answer one image in the form that the query wants."""
        wish = self._wish(request)
        if self.waiting >= WAITING:
            told = f"{WAITING} images are waiting already: try again later"
            raise HTTPException(503, told, {"Retry-After": "5"})
        self.waiting += 1
        try:
            found = await self._within_limits(request, wish)
        finally:
            self.waiting -= 1
        named = {"Content-Disposition": f'inline; filename="{found.name}"'}
        return Response(found.content, headers=NOSNIFF | named, media_type=found.kind)

    async def _within_limits(self, request: Request, wish: Wish) -> Answer:
        content = None
        try:
            async with asyncio.timeout(self.limits.seconds):
                content = await self._content(request)
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self.pool, self._answer, content, wish)
        except TimeoutError:
            seconds = f"{self.limits.seconds:g} seconds"
            if content is None:
                raise HTTPException(408, f"the image did not arrive within {seconds}") from None
            raise HTTPException(503, f"predicting took longer than {seconds}") from None

    def _answer(self, content: bytes, wish: Wish) -> Answer:
        try:
            return answer(self.model, content, wish)
        except UnreadableError:
            raise
        except Exception as error:
            # For who runs the server; who asks is told no more than that it failed.
            traceback.print_exception(error)
            raise HTTPException(500, "the model failed on this image") from error

    def _wish(self, request: Request) -> Wish:
        form = request.query_params.get("as", "json")
        if form not in ANSWERS:
            raise HTTPException(400, f"as={form} is unknown; known are {', '.join(ANSWERS)}")
        return replace(self.wish, form=form, pictures="pictures" in request.query_params)

    async def _content(self, request: Request) -> bytes:
        """The image: the one file of a form, or else the whole body."""
        limited = Request(request.scope, self._limited(request.receive))
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            return await limited.body()
        async with limited.form(max_files=1, max_fields=8) as form:
            files = [each for each in form.values() if isinstance(each, UploadFile)]
            if not files:
                raise HTTPException(400, "the form holds no file: send the image as one")
            return await files[0].read()

    def _limited(self, receive: Receive) -> Receive:
        """The messages of a body; too long a one is read to its end, but not kept, and refused.

        Who is still sending when the connection closes would not see why.
        """
        most = self.limits.megabytes * MEGABYTE
        got = 0

        async def counted() -> Message:
            nonlocal got
            while True:
                message = await receive()
                got += len(message.get("body", b""))
                if got <= most:
                    return message
                if not message.get("more_body"):
                    told = f"the image has more than {self.limits.megabytes:g} MB"
                    raise HTTPException(413, told)

        return counted


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


async def _told(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _unreadable(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 422)


async def _gone(_: Request, __: Exception) -> Response:
    return Response(status_code=400)  # nobody is there to read it
