"""Chromium without a window, driven through a pipe by the DevTools protocol."""

import contextlib
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import time
from collections.abc import Generator
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
    *("--disable-background-networking", "--no-first-run", "--hide-scrollbars"),
)


def find() -> str | None:
    """Returns the path of a browser, or None where none is installed."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Page:
    """A tab of the browser, and everything that it reported."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._rest, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        options = {"targetId": target, "flatten": True}
        self._session = self.call("Target.attachToTarget", **options)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Returns the answer of the browser; its events are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next(60.0)).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        found: dict[str, Any] = answer["result"]
        return found

    def _next(self, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], end - time.monotonic())[0]:
                raise TimeoutError("The browser did not answer.")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise RuntimeError("The browser ended.")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def open(
        self, path: pathlib.Path, *, width: int, scheme: str, is_drawn: bool = True
    ) -> None:
        """Opens a file in a window of a width, in light or dark, and waits for it.

        A page without a script of its own says by no `isDrawn` that it stands.
        """
        size = {"width": width, "height": 900, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", mobile=width < 600, **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media="screen", features=features)
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        ready = "document.readyState === 'complete' && location.href !== 'about:blank'"
        ready += " && !!window.isDrawn" if is_drawn else ""
        end = time.monotonic() + 60
        while not self.value(ready) and time.monotonic() < end:
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        """Returns the value of an expression on the page, as JSON."""
        options = {"returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", expression=expression, **options)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Returns the errors and warnings of the console since the page was opened."""
        found = []
        for event in self.events:
            values = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(values["exceptionDetails"]))
            elif event.get("method") == "Log.entryAdded":
                found.append(values["entry"]["text"])
            elif event.get("method") == "Runtime.consoleAPICalled":
                found.append(str(values["args"]))
        return found

    def requests(self) -> list[str]:
        """Returns the addresses that the page asked for, its own file included."""
        sent = [
            e for e in self.events if e.get("method") == "Network.requestWillBeSent"
        ]
        return [event["params"]["request"]["url"] for event in sent]


@contextlib.contextmanager
def open_page(program: str) -> Generator[Page]:
    """Starts the browser for as long as the `with` lasts."""
    to_read, to_write = os.pipe(), os.pipe()
    # The browser reads from descriptor 3 and writes to 4. Descriptors above these are
    # given to the shell, so that one redirection cannot close the other's source.
    pairs = (to_write[0], to_read[1])
    high = [fcntl.fcntl(number, fcntl.F_DUPFD, 20) for number in pairs]
    script = f'exec "$0" "$@" 3<&{high[0]} 4>&{high[1]}'
    process = subprocess.Popen(
        ["/bin/bash", "-c", script, program, *_FLAGS],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=high,
    )
    for number in (*pairs, *high):
        os.close(number)
    try:
        yield Page(to_read[0], to_write[1])
    finally:
        process.terminate()
        process.wait(20)
        os.close(to_read[0])
        os.close(to_write[1])
