"""A small read-only web server for the live page, on threads of its own.

It answers GET and HEAD of five addresses and nothing else. Requests, time and the number of clients are bounded; a client that
does not read holds up its own thread only, and is dropped after a while.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import socketserver
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from types import TracebackType
from typing import Any

from echelon_jax.live.feed import Feed

MOST_CLIENTS = 16  # connections at a time
PATIENCE = 10.0  # seconds for a client to send its request, and to take a piece of the answer
HEARTBEAT = 15.0  # seconds after which a quiet stream sends a comment, which also finds out who has gone
PORTS_TRIED = 20
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# The page of a game brings its own policy; here it gets no access to this page, and nobody else may frame it.
GAME_POLICY = "sandbox allow-scripts; frame-ancestors 'self'"
ASSETS = {
    "/": ("live.html", "text/html; charset=utf-8"),
    "/live.css": ("live.css", "text/css; charset=utf-8"),
    "/live.js": ("live.js", "text/javascript; charset=utf-8"),
}


class LiveServer(ThreadingHTTPServer):
    """Serves a feed until it is closed; a context manager.

    Args:
        feed: what is shown.
        host: the address to listen at; only programs of this machine reach the default.
        port: the port; the next free one is taken where it is in use, and any free one for 0.

    Raises:
        OSError: no port is free, or the address is not one of this machine.
    """

    daemon_threads = True
    request_queue_size = MOST_CLIENTS

    def __init__(self, feed: Feed, host: str = "127.0.0.1", port: int = 0) -> None:
        self.feed = feed
        self.clients = threading.Semaphore(MOST_CLIENTS)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        last = min(port + PORTS_TRIED, 65536) if port else 1
        for candidate in range(port, last):
            try:
                super().__init__((host, candidate), _Handler)
                break
            except OSError:
                if candidate == last - 1:
                    raise
        self.host, self.port = host, self.server_port
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), name="live page", daemon=True)

    @property
    def url(self) -> str:
        """The address of the page for a person at this machine."""
        host = "127.0.0.1" if self.host in ("", "0.0.0.0") else "[::1]" if self.host == "::" else self.host
        return f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{self.port}/"

    def answers_to(self, host: str) -> bool:
        """Return whether a request for this name is answered.

        A server for this machine alone answers to names of this machine, so that no page of another site can read it by letting its
        own name point here.
        """
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        return not is_loopback(self.host) or name in ("localhost", "127.0.0.1", "[::1]", self.host)

    def __enter__(self) -> LiveServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.feed.end()
        self.shutdown()
        self.server_close()

    def server_bind(self) -> None:
        """Take the address without asking a name server for this machine's name, as the base class does."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a client, or send it away where there are too many."""
        if self.clients.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):
            request.setblocking(False)
            request.send(b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n")
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one client, and make room for the next."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.clients.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a client that has gone is no news, and the terminal belongs to the run."""


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    timeout = PATIENCE  # of the socket, set by the base class
    server_version, sys_version = "echelon", ""

    def do_GET(self) -> None:
        """Answer a request for a page, the stream of news, or the newest game."""
        if not self.server.answers_to(self.headers.get("Host", "")):
            self.send_error(421, "This server has no such name")
            return
        path = self.path.partition("?")[0]
        if path in ASSETS:
            name, kind = ASSETS[path]
            self._answer(kind, (files("echelon_jax.live") / "assets" / name).read_bytes(), POLICY)
        elif path == "/game":
            game = self.server.feed.game
            if game is None:
                self.send_error(404, "No game has been played yet")
            else:
                self._answer("text/html; charset=utf-8", game[1], GAME_POLICY)
        elif path == "/events":
            self._stream()
        else:
            self.send_error(404)

    do_HEAD = do_GET

    def _answer(self, kind: str, body: bytes, policy: str) -> None:
        self._begin(kind, policy)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def _begin(self, kind: str, policy: str) -> None:
        self.send_response(200)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Security-Policy", policy),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            self.send_header(name, value)

    def _stream(self) -> None:
        """Send everything so far, then news as it comes, until the run is over or the client is gone."""
        self._begin("text/event-stream", POLICY)
        self.end_headers()
        if self.command == "HEAD":
            return
        reader, over = self.server.feed.reader(), False
        while not over:
            news = reader.next(HEARTBEAT)
            text = "".join(f"event: {name}\ndata: {data}\n\n" for name, data in news) or ": still here\n\n"
            self.wfile.write(text.encode())
            self.wfile.flush()
            over = any(name == "over" for name, _ in news)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing, because the terminal belongs to the run."""


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
