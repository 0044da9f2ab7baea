"""Serves replaceable filters to the workers of streaming queries, from the driver's process, over HTTP.

    GET /version?query=QUERY&batch=7&use=1    the version for a micro-batch: its digest
    GET /package/DIGEST                       the package

A worker asks for the version at the beginning of each task (about a millisecond), and for a package once on each
machine. The address holds a secret, because whoever may reach the port could read the filters otherwise.
"""

import http.client
import logging
import secrets
import shutil
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from culver.errors import Unavailable

_REQUEST_SECONDS = 30.0

_logger = logging.getLogger(__name__)


class FilterAddress(NamedTuple):
    """Where the workers find the filters."""

    host: str
    port: int
    secret: str

    def version(self, query: str, batch: int, use: int) -> str:
        """Ask for the version of a micro-batch; `use` is the number that `Filters.serve` gave. Raises Unavailable."""
        parameters = urlencode({"query": query, "batch": batch, "use": use})
        return b"".join(self._get(f"version?{parameters}")).decode()

    def fetch(self, version: str, path: Path) -> None:
        """Write a package to a path. Raises Unavailable, and OSError where it cannot be written."""
        with path.open("wb") as file:
            file.writelines(self._get(f"package/{version}"))

    def _get(self, what: str) -> Iterator[bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_REQUEST_SECONDS)
        try:
            connection.request("GET", f"/{self.secret}/{what}")
            response = connection.getresponse()
            if response.status != 200:
                raise Unavailable(f"the driver no longer serves these filters: {response.status}")
            while piece := response.read(1 << 20):
                yield piece
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
        except (OSError, http.client.HTTPException) as exc:
            raise Unavailable(
                f"the driver does not serve its filters at {self.host}:{self.port} (culver.spark.Filters): {exc}"
            ) from exc
        finally:
            connection.close()


class FilterServer:
    """Answers in threads of its own until `close`. `choose` is called from them, and `package` gives the file of a
    version, or None. Raises OSError where the address cannot be bound."""

    def __init__(
        self,
        bind: str,
        host: str,
        port: int,
        choose: Callable[[str, int, int], str],
        package: Callable[[str], Path | None],
    ) -> None:
        secret = secrets.token_urlsafe(24)

        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST_SECONDS

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                match url.path.split("/"):
                    case ["", given, "version"] if secrets.compare_digest(given, secret):
                        asked = dict(parse_qsl(url.query))
                        version = choose(asked["query"], int(asked["batch"]), int(asked["use"]))
                        self._answer(version.encode())
                    case ["", given, "package", version] if secrets.compare_digest(given, secret):
                        self._send(package(version))
                    case _:
                        self.send_error(404)

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _send(self, path: Path | None) -> None:
                if path is None:
                    self.send_error(410)
                    return
                with path.open("rb") as file:
                    self.send_response(200)
                    self.send_header("Content-Length", str(path.stat().st_size))
                    self.end_headers()
                    shutil.copyfileobj(file, self.wfile, 1 << 20)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """A request for every task is nothing to tell."""

        # Not an HTTPServer, which asks DNS for a name of the address that nobody needs.
        class Server(socketserver.ThreadingTCPServer):
            address_family = socket.AF_INET6 if ":" in bind else socket.AF_INET
            allow_reuse_address = True
            daemon_threads = True
            request_queue_size = 256  # all tasks of a batch ask at once

            def handle_error(self, request: object, client_address: object) -> None:
                """Called where the exception is handled. The task sees a connection that ends, and is run again."""
                exc = sys.exception()
                if isinstance(exc, ConnectionError | TimeoutError):
                    _logger.info("the connection of a worker at %s ended: %s", client_address, exc)
                else:
                    _logger.exception("a request of a worker at %s failed", client_address)

        self._server = Server((bind, port), Handler)
        self.address = FilterAddress(host, self._server.server_address[1], secret)
        self._thread = threading.Thread(target=self._server.serve_forever, name="culver-filters", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
