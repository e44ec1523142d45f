"""Headless Chromium, driven by the DevTools protocol over pipes.

https://chromedevtools.github.io/devtools-protocol: messages are JSON, each followed by a zero byte;
the browser reads them from descriptor 3 and writes to 4.
"""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((path for path in map(shutil.which, NAMES) if path), None)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--remote-debugging-pipe",
    "--disable-background-networking",
    "--force-color-profile=srgb",
)
KEYS = {"Enter": 13, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Browser:
    """A browser with one page.

    Args:
        timeout: seconds to wait for an answer.
    """

    def __init__(self, timeout: float = 60.0) -> None:
        assert BROWSER is not None
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read, self._to = os.pipe()
        self._from, write = os.pipe()

        def connect() -> None:
            first = os.dup(read)
            second = os.dup(write)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self._process = subprocess.Popen(
            [BROWSER, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(3, 4, read, write),
            preexec_fn=connect,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._numbers = itertools.count(1)
        self._rest = b""
        self._timeout = timeout
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        (page,) = [
            target
            for target in self.call("Target.getTargets")["targetInfos"]
            if target["type"] == "page"
        ]
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + self._timeout
        while True:
            answer = self._read(end)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _read(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(end - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            self._rest += os.read(self._from, 1 << 20)
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def open(
        self,
        path: Path,
        *,
        width: int = 1100,
        height: int = 900,
        dark: bool = False,
        mobile: bool = False,
    ) -> None:
        """Open a file, and wait until it is drawn; a phone's scroll bars take no room."""
        self._resize(width, height, mobile=mobile)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        end = time.monotonic() + self._timeout
        while self.evaluate("document.readyState") != "complete":
            assert time.monotonic() < end, "the page does not load"
            time.sleep(0.02)

    def resize_to_page(self, width: int, *, mobile: bool = False) -> None:
        """Make the window as high as its page, so that all of the page is inside."""
        height = self.evaluate("document.documentElement.scrollHeight")
        self._resize(width, height, mobile=mobile)

    def _resize(self, width: int, height: int, *, mobile: bool) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile},
        )

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in JavaScript, of a promise once it is kept."""
        options = {"returnByValue": True, "awaitPromise": True}
        result = self.call("Runtime.evaluate", expression=expression, **options)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, *keys: str) -> None:
        """Press keys, one after another."""
        for key in keys:
            text = {"text": key} if len(key) == 1 else {}
            code = {"windowsVirtualKeyCode": KEYS.get(key, ord(key[0].upper()))}
            if key == "Enter":
                text = {"text": "\r"}
            self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **code, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def screenshot(self, path: Path) -> None:
        """Write an image of the whole page."""
        options = {"format": "png", "captureBeyondViewport": True}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **options)["data"]))

    def problems(self) -> list[str]:
        """Return errors of scripts, and requests other than of the page itself."""
        found = []
        for event in self.events:
            method = event.get("method")
            params = event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"])[:500])
            if method == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(params["entry"]["text"])
            if method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith(("file:", "data:")):
                    found.append(url)
        return found

    def close(self) -> None:
        """End the browser."""
        os.close(self._to)
        os.close(self._from)
        self._process.terminate()
        self._process.wait(timeout=20)
        self._profile.cleanup()
