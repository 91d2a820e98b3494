"""The server: headers, types, and nothing from outside the folder."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from webrelax.compiler.errors import WebrelaxError
from webrelax.packaging.serve import open_server, serving


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    (folder / "models/m").mkdir(parents=True)
    for name in (
        "index.html",
        "runtime.js",
        "part.mjs",
        "vm.wasm",
        "site.webmanifest",
        "strange.xyz",
        "models/m/w-000.bin",
    ):
        (folder / name).write_bytes(b"content of " + name.encode())
    (folder / "models.json").write_text('{"models": ["m"]}')
    (tmp_path / "secret.txt").write_text("secret")
    return folder


@pytest.fixture
def connection(site: Path) -> Iterator[http.client.HTTPConnection]:
    with serving(site) as url:
        address = url.removeprefix("http://").removesuffix("/")
        client = http.client.HTTPConnection(address, timeout=10)
        yield client
        client.close()


def get(client: http.client.HTTPConnection, path: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    client.putrequest("GET", path, skip_host=False)
    for name, value in headers.items():
        client.putheader(name.replace("_", "-"), value)
    client.endheaders()
    response = client.getresponse()
    return response, response.read()


@pytest.mark.parametrize(
    ("path", "mime"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/runtime.js", "text/javascript; charset=utf-8"),
        ("/part.mjs", "text/javascript; charset=utf-8"),
        ("/vm.wasm", "application/wasm"),
        ("/models.json", "application/json"),
        ("/models/m/w-000.bin", "application/octet-stream"),
        ("/site.webmanifest", "application/manifest+json"),
        ("/strange.xyz", "application/octet-stream"),
    ],
)
def test_each_kind_of_file_has_its_type(connection: http.client.HTTPConnection, path: str, mime: str) -> None:
    response, body = get(connection, path)
    assert (response.status, response.headers["Content-Type"]) == (200, mime)
    assert body


def test_pages_are_isolated_and_revalidated(connection: http.client.HTTPConnection) -> None:
    response, _ = get(connection, "/index.html?query")
    assert response.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert response.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert response.headers["Cache-Control"] == "no-cache"
    again, body = get(connection, "/index.html", If_Modified_Since=response.headers["Last-Modified"])
    assert (again.status, body) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/models/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "//../secret.txt",
        "/link.txt",
        "/linked/secret.txt",
        "/models/m/",
        "/models/",
        "/index.html%00",
        "/absent.bin",
        "/pipe",
        "/circle",
    ],
)
def test_nothing_else_is_served(connection: http.client.HTTPConnection, site: Path, path: str) -> None:
    (site / "link.txt").symlink_to(site.parent / "secret.txt")
    (site / "linked").symlink_to(site.parent)
    (site / "circle").symlink_to("circle")
    os.mkfifo(site / "pipe")
    response, body = get(connection, path)
    assert response.status == 404
    assert b"secret" not in body


def test_a_visitor_that_leaves_makes_no_noise(site: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with (site / "models/m/w-000.bin").open("wb") as file:
        file.truncate(64 << 20)
    with serving(site) as url:
        host, port = url.removeprefix("http://").removesuffix("/").split(":")
        with socket.create_connection((host, int(port))) as visitor:
            visitor.sendall(b"GET /models/m/w-000.bin HTTP/1.1\r\nHost: x\r\n\r\n")
            visitor.recv(1024)
            visitor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # leave with a reset
        client = http.client.HTTPConnection(f"{host}:{port}", timeout=10)
        assert get(client, "/index.html")[0].status == 200
        client.close()
    assert capfd.readouterr().err == ""


def test_without_a_port_the_next_free_one_is_taken(site: Path) -> None:
    with open_server(site, "127.0.0.1", None) as first, open_server(site, "127.0.0.1", None) as second:
        assert first.server_address[1] < second.server_address[1]


def test_a_named_port_in_use_is_an_error(site: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(WebrelaxError, match=f"port {port} is in use"):
            open_server(site, "127.0.0.1", port)


def test_what_is_not_a_site_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WebrelaxError, match="there is no folder"):
        open_server(tmp_path / "absent", "127.0.0.1", 0)
    with pytest.raises(WebrelaxError, match="is not a site"):
        open_server(tmp_path, "127.0.0.1", 0)


def test_an_address_that_is_not_this_machines_is_an_error(site: Path) -> None:
    with pytest.raises(WebrelaxError, match="cannot listen on 192"):
        open_server(site, "192.0.2.1", 0)


@pytest.mark.parametrize("host", ["", "a..b", "x" * 300, "\udcff", "a\0b"])
def test_what_no_host_is_called_is_an_error(site: Path, host: str) -> None:
    with pytest.raises(WebrelaxError, match=r"host|cannot listen on"):
        open_server(site, host, 0)


def test_the_command_prints_its_address_and_ends_on_interrupt(site: Path) -> None:
    command = [sys.executable, "-P", "-m", "webrelax.packaging.cli", "serve", str(site), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        line = process.stdout.readline()
        address = line.split(" at http://")[1].split("/")[0]
        client = http.client.HTTPConnection(address, timeout=10)
        assert get(client, "/")[1] == b"content of index.html"
        client.close()
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=10)
    assert (process.returncode, errors) == (0, "")
