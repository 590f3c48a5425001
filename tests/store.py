"""An object store on loopback that speaks as much of S3 as a reader needs: list, head, and ranges of objects.

Signatures are not looked at. Objects are files of a folder; `gone` are keys that are answered with 404 from now on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, quote, unquote, urlsplit

BUCKET = "ward"


class Store:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []  # keys of objects that were read
        self.gone: set[str] = set()
        self.address = ""

    def uri(self, key: str) -> str:
        return f"s3://me:secret@{BUCKET}/{quote(key)}?scheme=http&region=here&endpoint_override={self.address}"

    def keys(self, prefix: str) -> list[tuple[str, int]]:
        found = [(path.relative_to(self.folder).as_posix(), path) for path in sorted(self.folder.rglob("*"))]
        return [(key, path.stat().st_size) for key, path in found if path.is_file() and key.startswith(prefix)]


def _handler(store: Store) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version, wbufsize, disable_nagle_algorithm = "HTTP/1.1", 2**16, True

        def log_message(self, *_: object) -> None:
            """Nothing."""

        def _answer(self, status: int, body: bytes = b"", kind: str = "application/xml", **more: str) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **more}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            said = urlsplit(self.path)
            key = unquote(said.path).removeprefix(f"/{BUCKET}").strip("/")
            if "list-type" in (options := parse_qs(said.query)):
                self._answer(200, _listed(store, options))
                return
            path = store.folder / key
            if key in store.gone or not path.is_file():
                self._answer(404 if key else 200, b"<Error><Code>NoSuchKey</Code></Error>" if key else b"")
                return
            body = path.read_bytes()
            given = self.headers.get("Range", "")
            tag = {"ETag": '"1"', "Last_Modified": "Tue, 01 Jan 2019 00:00:00 GMT", "Accept_Ranges": "bytes"}
            if self.command == "HEAD":
                self.send_response(200)
                for name, value in {"Content-Length": str(len(body)), **tag}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                return
            store.asked.append(key)
            if not given:
                self._answer(200, body, "application/octet-stream", **tag)
                return
            first, _, last = given.removeprefix("bytes=").partition("-")
            part = body[int(first) : int(last or len(body) - 1) + 1]
            whole = f"bytes {first}-{int(first) + len(part) - 1}/{len(body)}"
            self._answer(206, part, "application/octet-stream", Content_Range=whole, **tag)

    return Handler


def _listed(store: Store, options: dict[str, list[str]]) -> bytes:
    prefix, delimiter = options.get("prefix", [""])[0], options.get("delimiter", [""])[0]
    rows, folders = "", list[str]()
    for key, size in store.keys(prefix):
        rest = key[len(prefix) :]
        if delimiter and delimiter in rest:
            folders.append(prefix + rest.partition(delimiter)[0] + delimiter)
        else:
            rows += (
                f'<Contents><Key>{key}</Key><LastModified>2019-01-01T00:00:00.000Z</LastModified><ETag>"1"</ETag>'
                f"<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            )
    rows += "".join(f"<CommonPrefixes><Prefix>{one}</Prefix></CommonPrefixes>" for one in dict.fromkeys(folders))
    count = rows.count("<Key>") + len(set(folders))
    head = f"<Name>{BUCKET}</Name><KeyCount>{count}</KeyCount><IsTruncated>false</IsTruncated>"
    return f'<?xml version="1.0"?><ListBucketResult>{head}{rows}</ListBucketResult>'.encode()


@contextmanager
def store_of(folder: Path) -> Iterator[Store]:
    store = Store(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(store))
    store.address = f"127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
