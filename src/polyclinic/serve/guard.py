"""Who may ask: this machine alone, or whoever has the token."""

import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

OPEN = ("/", "/health")  # they tell nothing about the model
SHORTEST = 16  # characters of a token


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_token(host: str, token: str | None) -> None:
    """Refuse an address that others can reach without a token, and a token that can be guessed."""
    if not is_loopback(host) and not token:
        raise ValueError(
            f"other machines can reach {host}: give a token (--token, or better the variable "
            "POLYCLINIC_TOKEN), or serve this machine alone (--host 127.0.0.1)"
        )
    if token is not None and (len(token) < SHORTEST or not token.isascii() or " " in token):
        raise ValueError(
            f"the token can be guessed or sent wrongly: take {SHORTEST} or more letters and "
            "digits, such as those of `openssl rand -hex 16`"
        )


class Guard:
    """Lets pass what has the token or, without one, what was meant for this machine.

    A page from elsewhere could have its own name point to this machine; then the name is not ours.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app = app
        self.token = f"Bearer {token}".encode() if token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] == "http" and (refusal := self._refusal(scope)):
            await refusal(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if self.token is None:
            if is_loopback(_name(headers.get("host", ""))):
                return None
            return JSONResponse({"error": "this server is for its own machine alone"}, 403)
        given = headers.get("authorization", "").encode("latin-1")
        if scope["path"] in OPEN or hmac.compare_digest(given, self.token):
            return None
        told = "a token is needed: send it as `Authorization: Bearer TOKEN`"
        return JSONResponse({"error": told}, 401, {"WWW-Authenticate": "Bearer"})


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
