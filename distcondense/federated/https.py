"""The folder between the parties, over HTTPS with mutual TLS: the coordinator serves it, sites read and write it.

Server and client are the standard library's (http.server, http.client, ssl): a handful of clients, small messages and
nothing to install where hospitals must approve every package. TLS says who may connect; what a message is worth its own
signature says, as in a folder. A site may put what is its own, by the name in its certificate, and once: nothing that
is there is ever replaced.
"""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from distcondense.errors import RunFolderError, SettingsError, brief, os_errors
from distcondense.federated import session as kinds
from distcondense.federated.folder import SharedFolder
from distcondense.federated.messages import MOST_BYTES, NAME, read_message

CERTIFICATE, KEY, AUTHORITY = "cert.pem", "key.pem", "ca.pem"
READ = re.compile(
    rf"/(?:{kinds.AGREEMENT}|{kinds.SET}|{kinds.CLOSE}|joined/{NAME.pattern}|rounds/\d{{6}}/{NAME.pattern}"
    r"|release/[\w-][\w.-]{0,99})"
)
WRITTEN = re.compile(rf"/(?:joined|rounds/\d{{6}})/(?P<name>{NAME.pattern})")
SECONDS = 60.0  # that a request may take


@dataclass(frozen=True)
class Certificates:
    """A folder with this party's certificate and key, and the authority that signed everybody's."""

    folder: Path

    def context(self, purpose: ssl.Purpose) -> ssl.SSLContext:
        """TLS 1.3, and both sides show a certificate."""
        files = [self.folder / name for name in (AUTHORITY, CERTIFICATE, KEY)]
        for file in files:
            if not file.is_file():
                raise SettingsError(
                    "--tls", f"must be a folder with {AUTHORITY}, {CERTIFICATE} and {KEY}", found=f"no {file.name}"
                )
        try:
            context = ssl.create_default_context(purpose, cafile=str(files[0]))
            context.load_cert_chain(str(files[1]), str(files[2]))
        except ssl.SSLError:
            raise SettingsError("--tls", "must hold certificates in PEM format", found="something else") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        return context


class HttpsFolder(SharedFolder):
    """A site's view of the folder that a coordinator serves."""

    def __init__(self, url: str, tls: Path, *, wait: bool = False, on_wait: Callable[[], None] = lambda: None) -> None:
        super().__init__(Path(), wait=wait, on_wait=on_wait)
        self.name = url
        where = urlsplit(url)
        self._host, self._port = where.hostname or "", where.port or 443
        self._context = Certificates(tls).context(ssl.Purpose.SERVER_AUTH)
        self._line: http.client.HTTPSConnection | None = None

    def has(self, *names: str) -> bool:
        return self._asked("HEAD", names)[0] == 200

    def _read(self, *names: str) -> bytes:
        status, content = self._asked("GET", names)
        if status != 200:
            raise RunFolderError(f"message {'/'.join(names)}", "must be there", found=f"answer {status}")
        return content

    def _write(self, message: bytes, *names: str) -> None:
        status, _ = self._asked("PUT", names, message)
        if status not in (200, 201):
            raise RunFolderError(
                f"message {'/'.join(names)}",
                "must be this site's own, and new",
                found=f"answer {status}",
                fix="the certificate must be for the name that the site joined by",
            )

    def _asked(self, method: str, names: tuple[str, ...], body: bytes | None = None) -> tuple[int, bytes]:
        """(status, content); a line that was cut is opened again once: every request may be made twice."""
        for last in (False, True):
            try:
                if self._line is None:
                    self._line = http.client.HTTPSConnection(
                        self._host, self._port, context=self._context, timeout=SECONDS
                    )
                self._line.request(method, "/" + "/".join(names), body)
                answer = self._line.getresponse()
                return answer.status, answer.read(MOST_BYTES + 1)
            except (OSError, http.client.HTTPException) as error:
                self._line = None
                if last:
                    raise RunFolderError(
                        f"coordinator {self._host}:{self._port}",
                        "must be reachable, and know this site's certificate as it knows the coordinator's",
                        found=type(error).__name__,
                        fix="the same command later; nothing is lost",
                    ) from None
        raise AssertionError


class FolderServer(ThreadingHTTPServer):
    """Serves a folder of messages to whoever has a certificate."""

    daemon_threads = True

    def __init__(self, shared: Path, tls: Path, host: str, port: int) -> None:
        self.shared = SharedFolder(shared)
        context = Certificates(tls).context(ssl.Purpose.CLIENT_AUTH)
        with os_errors(f"address {host}:{port}", "must be free to listen at", RunFolderError):
            super().__init__((host, port), MessageHandler)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or has no certificate, is no event."""


@contextmanager
def served(shared: Path, tls: Path, listen: str) -> Iterator[FolderServer]:
    """A server at HOST:PORT that is still to be started; closed at the end."""
    host, _, port = listen.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise SettingsError("--listen", "must be an address and a port", found=repr(brief(listen)), fix="0.0.0.0:8443")
    server = FolderServer(shared, tls, host, int(port))
    try:
        yield server
    finally:
        server.server_close()


class MessageHandler(BaseHTTPRequestHandler):
    """HEAD, GET and PUT of messages."""

    protocol_version = "HTTP/1.1"
    timeout = SECONDS
    server: FolderServer

    def do_HEAD(self) -> None:
        self._give(body=False)

    def do_GET(self) -> None:
        self._give(body=True)

    def do_PUT(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MOST_BYTES:
            self.close_connection = True
            return self._answer(413)
        message = self.rfile.read(int(length))
        written = WRITTEN.fullmatch(self.path)
        if written is None or written["name"] != self._client():
            return self._answer(403)
        try:
            self.server.shared.put(message, *self.path[1:].split("/"))
        except RunFolderError:
            return self._answer(409)
        return self._answer(201)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Messages are their own record."""

    def _give(self, *, body: bool) -> None:
        names = self.path[1:].split("/")
        if not READ.fullmatch(self.path) or not self.server.shared.has(*names):
            return self._answer(404)
        return self._answer(200, read_message(self.server.shared.path.joinpath(*names)), body=body)

    def _client(self) -> str:
        """The common name in the client's certificate, which TLS has checked."""
        subject: Any = (self.connection.getpeercert() or {}).get("subject", ())  # type: ignore[attr-defined]
        return str(next((value for part in subject for name, value in part if name == "commonName"), ""))

    def _answer(self, status: int, content: bytes = b"", *, body: bool = True) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)
