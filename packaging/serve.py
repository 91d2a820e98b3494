"""`webrelax serve`: a site on localhost, with the headers and types that a browser wants to run it."""

from __future__ import annotations

import argparse
import contextlib
import errno
import socket
import sys
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ..compiler.errors import WebrelaxError

DEFAULT_PORT = 8000
_PORTS_TRIED = 20

# Not the system's table: what it says of .js and .wasm differs between machines, and browsers refuse wrong types.
_TYPES = {
    "": "application/octet-stream",
    ".bin": "application/octet-stream",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
}

# Cross-origin isolation, which shared memory between threads needs; revalidation, so that a rebuilt site shows at once.
_HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


class SiteServer(ThreadingHTTPServer):
    """Serves the files of one folder, and nothing outside of it. Listens once made; `port` 0 takes a free one."""

    daemon_threads = True

    def __init__(self, site: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        self.site = site.resolve()
        self.host = host
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A visitor that leaves in the middle of a download is no error.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SiteServer

    def __init__(self, request: Any, client_address: Any, server: SiteServer) -> None:
        super().__init__(request, client_address, server, directory=str(server.site))

    def guess_type(self, path: Any) -> str:
        return _TYPES.get(Path(path).suffix.lower(), _TYPES[""])

    def send_head(self) -> Any:
        # The base class drops `..`; a link inside the folder could still lead out of it, and to read a pipe waits.
        try:
            path = Path(self.translate_path(self.path)).resolve()
            served = path.is_relative_to(self.server.site) and (path.is_file() or path.is_dir())
        except (OSError, RuntimeError, ValueError):  # links in a circle; a zero byte, which no file name has
            served = False
        if not served:
            self.send_error(HTTPStatus.NOT_FOUND, "File not found")
            return None
        return super().send_head()

    def list_directory(self, path: Any) -> None:
        self.send_error(HTTPStatus.NOT_FOUND, "File not found")

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass  # log_error still tells of what went wrong


@contextlib.contextmanager
def serving(site: Path, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serves `site` from a thread for the length of the block, which gets its address, ending in a slash."""
    with SiteServer(site, host, port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()


def open_server(site: Path, host: str, port: int | None) -> SiteServer:
    """A server for `site`. Without a port it takes the first free one from 8000 on.

    Raises WebrelaxError where `site` is not a built site, the port is taken, or the address is not this machine's.
    """
    if not site.is_dir():
        raise WebrelaxError(f"there is no folder {site}; build a site with `webrelax build MODEL -o {site}`")
    if not (site / "index.html").is_file():
        raise WebrelaxError(
            f"{site} is not a site (it has no index.html); build one with `webrelax build MODEL -o DIR`"
        )
    if not host:
        raise WebrelaxError("the host is empty; name an address of this machine, 0.0.0.0 for all of them")
    ports = range(DEFAULT_PORT, DEFAULT_PORT + _PORTS_TRIED) if port is None else (port,)
    for candidate in ports:
        try:
            return SiteServer(site, host, candidate)
        except (OSError, TypeError, UnicodeError) as error:  # the latter for what no host can be called
            if getattr(error, "errno", None) != errno.EADDRINUSE:
                reason = getattr(error, "strerror", None) or error
                raise WebrelaxError(f"cannot listen on {host} port {candidate}: {reason}") from error
    if port is None:
        raise WebrelaxError(f"ports {ports[0]} to {ports[-1]} are all in use; name a free one with --port")
    raise WebrelaxError(f"port {port} is in use; stop what uses it or name another with --port")


def run(args: argparse.Namespace) -> int:
    with open_server(args.site, args.host, args.port) as server:
        print(f"Serving {args.site} at {server.url} (Ctrl-C stops it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0
