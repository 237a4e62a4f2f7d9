"""A headless Chromium, driven through the W3C WebDriver protocol: a few JSON requests to chromedriver."""

from __future__ import annotations

import base64
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_PATIENCE_SECONDS = 30


class Element:
    """An element of the page."""

    def __init__(self, browser: Browser, reference: dict[str, str]) -> None:
        self._browser, self.reference = browser, reference
        self._path = f"/element/{reference[_ELEMENT]}"

    @property
    def text(self) -> str:
        """What a person reads in it."""
        return str(self._browser.call("GET", f"{self._path}/text"))

    def click(self) -> None:
        """Click it."""
        self._browser.call("POST", f"{self._path}/click", {})

    def type(self, text: str) -> None:
        """Type into it."""
        self._browser.call("POST", f"{self._path}/value", {"text": text})


class Browser:
    """Chromium that reaches nothing but this machine, and logs what it asks for."""

    def __init__(self, profile: Path, *, is_dark: bool = False) -> None:
        self._profile, self._is_dark = profile, is_dark
        self._process: subprocess.Popen[str] | None = None
        self._session = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        port = _announced_port(self._process)
        self._session = f"http://127.0.0.1:{port}/session"
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--window-size=1440,1000",
            f"--user-data-dir={self._profile}",
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            *(["--blink-settings=preferredColorScheme=0"] if self._is_dark else []),
        ]
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": CHROMIUM, "args": arguments},
            "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"},
        }
        found = self._send("POST", self._session, {"capabilities": {"alwaysMatch": capabilities}})
        self._session = f"{self._session}/{found['sessionId']}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._session.count("/") > 3:
                self.call("DELETE", "")
        finally:
            if self._process is not None:
                self._process.terminate()
                self._process.wait(10)
                if self._process.stdout is not None:
                    self._process.stdout.close()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send a command of the protocol; returns its value."""
        return self._send(method, self._session + path, body)

    def open(self, url: str) -> None:
        """Go to a page, and wait until it is loaded."""
        self.call("POST", "/url", {"url": url})

    @property
    def url(self) -> str:
        """Where the outermost page is."""
        return str(self.call("GET", "/url"))

    def find(self, css: str) -> Element:
        """The first element that a selector finds, as soon as there is one."""
        return self.until(lambda: next(iter(self.all(css)), None), f"`{css}` on {self.url}")

    def all(self, css: str) -> list[Element]:
        """Every element that a selector finds now."""
        found = self.call("POST", "/elements", {"using": "css selector", "value": css})
        return [Element(self, reference) for reference in found]

    def link(self, text: str) -> Element:
        """The first link with this text, as soon as there is one."""
        query = {"using": "link text", "value": text}
        found = self.until(lambda: self.call("POST", "/elements", query), f"a link `{text}` on {self.url}")
        return Element(self, found[0])

    def enter_frame(self) -> None:
        """Go into the page's only frame, as soon as there is one."""
        frame = self.find("iframe")
        self.call("POST", "/frame", {"id": frame.reference})

    def leave_frame(self) -> None:
        """Go back to the outermost page."""
        self.call("POST", "/frame", {"id": None})

    def run(self, script: str) -> Any:
        """What a script returns."""
        return self.call("POST", "/execute/sync", {"script": script, "args": []})

    def screenshot(self, file: Path) -> None:
        """Keep what is seen as a PNG file."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(self.call("GET", "/screenshot")))

    def log(self, kind: str) -> list[dict[str, Any]]:
        """What was logged since the last call: `performance` or `browser`."""
        return list(self.call("POST", "/se/log", {"type": kind}))

    def requested(self) -> list[str]:
        """The addresses that were asked for since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until a condition gives something, and return that."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                if found := condition():
                    return found
            except WebDriverError as exc:
                # The page was replaced meanwhile.
                if "stale" not in str(exc) and "no such" not in str(exc):
                    raise
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {_PATIENCE_SECONDS} s for {what}")
            time.sleep(0.05)

    def _send(self, method: str, url: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as exc:
            with exc:
                raise WebDriverError(exc.read().decode(errors="replace")) from exc


class WebDriverError(Exception):
    """The browser refused a command."""


def _announced_port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if "successfully on port" in line:
            return int(line.rstrip(".\n").rpartition(" ")[2])
    raise AssertionError("chromedriver ended without naming its port")
