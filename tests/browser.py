"""Headless Chromium through a pipe (fds 3 and 4): opens a page, says what it logged and asked for, runs checks in it.

No profile and no network: names resolve to nothing, and the browser's home is a new empty folder. The checks are
those of the usual accessibility tools that matter for a page of text, tables and drawings.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--mute-audio",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)
# the pipe's ends must be 3 and 4 in the browser; subprocess cannot say that
STARTER = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
PATIENCE = 60.0  # seconds for one answer, on a busy machine


def chromium() -> str | None:
    """Where it is."""
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


class Browser:
    """One browser with one page."""

    def __init__(self, program: str) -> None:
        self.profile = tempfile.mkdtemp(prefix="distcondense-browser-")
        (read_in, self.write), (self.read, write_out) = os.pipe(), os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (read_in, write_out)]
        os.close(read_in), os.close(write_out)
        start = [sys.executable, "-c", STARTER, *map(str, high), program]
        command = [*start, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"]
        nowhere = {"HOME": self.profile, "XDG_CONFIG_HOME": self.profile, "XDG_CACHE_HOME": self.profile}
        self.process = subprocess.Popen(
            command,
            pass_fds=high,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **nowhere},
            start_new_session=True,
        )
        for fd in high:
            os.close(fd)
        self.number, self.buffer, self.session = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.session = ""
            self.call("Browser.close")
        for fd in (self.write, self.read):
            os.close(fd)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    # -- the protocol: JSON, each message ended by a zero byte

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": given}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write, data) :]
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], max(until - time.monotonic(), 0))
            chunk = os.read(self.read, 1 << 16) if ready else b""
            assert chunk, "the browser does not answer"
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def until(self, event: str) -> None:
        while not any(one.get("method") == event for one in self.events):
            self.events.append(self._next())

    # -- pages

    def open(self, page: Path | str, *, width: int = 1400, dark: bool = False, media: str = "screen") -> None:
        """Show a file, or an address on loopback; what it logs and asks for is in `events` from here on."""
        self.resize(width)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media=media, features=scheme)
        self.events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        self.until("Page.loadEventFired")

    def resize(self, width: int, height: int = 800) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def run(self, script: str) -> Any:
        """The value of an expression in the page. The page's own policy does not hold for the debugger."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def complaints(self) -> list[str]:
        """Everything the page put into the console or the log."""
        self.run("1")  # what was under way has arrived
        wrong = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [json.dumps(one["params"]) for one in self.events if one.get("method") in wrong]

    def requests(self) -> list[str]:
        """Addresses the page asked for, but for data inside it."""
        asked = [
            one["params"]["request"]["url"] for one in self.events if one.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in asked if not url.startswith("data:")]

    def whole(self, width: int) -> None:
        """A window as high as the page, so that every point of it can be asked what stands there."""
        self.resize(width, int(self.run("Math.ceil(document.documentElement.getBoundingClientRect().height)")) + 10)

    def picture(self, path: Path) -> None:
        """What the window shows."""
        shot = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))


# An axe-like check, in the page: gives what is wrong, in words.
CHECK = Path(__file__).with_name("page_check.js").read_text(encoding="utf-8")
