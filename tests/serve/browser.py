"""Chromium without a window, driven through its DevTools protocol."""

import base64
import json
import re
import subprocess
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from websockets.sync.client import connect

SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--remote-debugging-port=0",
    "--window-size=1280,1100",
)


@contextmanager
def tab(program: str, profile: Path):
    """A blank tab of a browser that ends with the block."""
    command = [program, *SWITCHES, f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            with connect(_address(process), max_size=None, proxy=None) as socket:
                yield Tab(socket)
        finally:
            process.terminate()
            process.stderr.read()


def _address(process) -> str:
    """Where the browser can be driven, which it says at its start."""
    lines = []
    for line in process.stderr:
        if found := re.search(r"DevTools listening on (ws://\S+)", line):
            return found[1]
        lines.append(line)
    raise RuntimeError("".join(lines))


class Tab:
    """One page of the browser."""

    def __init__(self, socket):
        self._socket, self._numbers, self._session = socket, count(1), None
        self._errors = []
        pages = self._ask("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in pages if each["type"] == "page")
        attached = self._ask("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        self._ask("Page.enable")
        self._ask("DOM.enable")

    def go(self, url: str) -> None:
        """Open a page and wait for all of it."""
        self._ask("Page.navigate", url=url)
        while self.value("document.readyState + location.href") != f"complete{url}":
            pass

    def value(self, script: str):
        """What a script gives; a promise is waited for."""
        asked = {"expression": script, "awaitPromise": True, "returnByValue": True}
        found = self._ask("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def choose(self, selector: str, file: Path) -> None:
        """Choose a file in an input, as a person does."""
        root = self._ask("DOM.getDocument")["root"]["nodeId"]
        node = self._ask("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self._ask("DOM.setFileInputFiles", nodeId=node, files=[str(file)])

    def press(self, key: str) -> None:
        """Press a key, as a person does."""
        codes = {"Escape": 27, "Enter": 13, "Tab": 9}
        for kind in ("keyDown", "keyUp"):
            self._ask(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes[key]
            )

    def watch_errors(self):
        """From now on keep what goes wrong on pages; gives a function that tells it."""
        self._ask("Runtime.enable")
        self._ask("Log.enable")

        def told():
            self.value("1")  # what was said before this answer has arrived with it
            return self._errors

        return told

    def screenshot(self) -> bytes:
        """The page as a PNG."""
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"])

    def _ask(self, method: str, **parameters):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self._errors.append(answer["params"])
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
