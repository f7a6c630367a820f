"""The live page's server: late viewers see everything, nobody can write, and nobody holds up the run."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from echelon_jax.live.feed import MOST_ROWS, Feed
from echelon_jax.live.server import MOST_CLIENTS, LiveServer, is_loopback

ABOUT = {"name": "run", "what": "a run", "updates": 100, "validates": True}


def line(update: int, **numbers: Any) -> dict[str, Any]:
    return {"update": update, "env_steps": 100 * update, "win_rate": 0.5, "secret": 1, **numbers}


@pytest.fixture
def server() -> Iterator[LiveServer]:
    with LiveServer(Feed(ABOUT)) as made:
        yield made


def ask(server: LiveServer, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(method, path, headers=headers)
    return connection.getresponse()


def events(answer: http.client.HTTPResponse, count: int) -> list[tuple[str, Any]]:
    """The next events of a stream."""
    found: list[tuple[str, Any]] = []
    while len(found) < count:
        name = answer.readline().decode().strip().removeprefix("event: ")
        found.append((name, json.loads(answer.readline().decode().removeprefix("data: "))))
        answer.readline()
    return found


def test_a_late_viewer_gets_everything_and_then_what_is_new(server: LiveServer) -> None:
    for update in (1, 2, 3):
        server.feed.write(line(update, win_rate=math.nan))
    server.feed.show_game(2, b"<p>a game</p>")
    answer = ask(server, "/events")
    about, rows, game = events(answer, 3)
    assert about == ("run", ABOUT) and game == ("game", {"update": 2})
    assert [row["update"] for row in rows[1]] == [1, 2, 3]
    assert rows[1][0]["win_rate"] is None, "JSON has no NaN"
    assert "secret" not in rows[1][0]
    server.feed.write(line(4))
    assert [row["update"] for row in events(answer, 1)[0][1]] == [4]
    server.feed.end()
    assert events(answer, 1) == [("over", {})]
    assert answer.read() == b""
    assert ask(server, "/game?update=2").read() == b"<p>a game</p>"


def test_a_run_that_goes_on_from_a_checkpoint_does_its_updates_again() -> None:
    feed = Feed(ABOUT)
    feed.extend(line(update) for update in (1, 2, 3, 4))
    feed.write(line(3, win_rate=0.75))
    [_, (_, rows)] = feed.reader().next(0)
    assert [(row["update"], row["win_rate"]) for row in json.loads(rows)] == [(1, 0.5), (2, 0.5), (3, 0.75)]


def test_the_rows_of_a_long_run_are_thinned_and_the_last_are_whole() -> None:
    feed = Feed(ABOUT)
    for update in range(1, 4 * MOST_ROWS):
        feed.write(line(update))
    [_, (_, rows)] = feed.reader().next(0)
    updates = [row["update"] for row in json.loads(rows)]
    assert len(updates) <= MOST_ROWS and updates == sorted(updates)
    assert updates[0] == 1 and updates[-100:] == list(range(4 * MOST_ROWS - 100, 4 * MOST_ROWS))


@pytest.mark.parametrize("path", ["/", "/live.js", "/live.css"])
def test_the_page_forbids_what_it_does_not_need(server: LiveServer, path: str) -> None:
    answer = ask(server, path)
    assert answer.status == 200 and len(answer.read()) > 500
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert ask(server, path, "HEAD").read() == b""


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(server: LiveServer, method: str) -> None:
    assert ask(server, "/", method).status == 501


@pytest.mark.parametrize("path", ["/../pyproject.toml", "/live.html", "/assets/live.js", "/%2e%2e/", "/game"])
def test_nothing_else_can_be_read(server: LiveServer, path: str) -> None:
    assert ask(server, path).status == 404


def test_a_server_for_this_machine_answers_to_no_foreign_name(server: LiveServer) -> None:
    assert ask(server, "/", Host="evil.example:80").status == 421
    assert ask(server, "/", Host=f"localhost:{server.port}").status == 200
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("0.0.0.0") and not is_loopback("192.168.1.2")


def test_more_clients_than_there_is_room_for_are_sent_away_and_room_comes_back(server: LiveServer) -> None:
    with contextlib.ExitStack() as stack:
        streams = [ask(server, "/events") for _ in range(MOST_CLIENTS)]
        for stream in streams:
            stack.enter_context(contextlib.closing(stream))
            events(stream, 1)
        assert ask(server, "/").status == 503
    server.feed.end()  # streams end, and their threads with them
    for _ in range(1000):
        if ask(server, "/").status == 200:
            return
        time.sleep(0.01)
    pytest.fail("no room came back")


def test_a_client_that_never_reads_does_not_hold_up_the_run(server: LiveServer) -> None:
    """Its buffers are full long before the end of what is published here; the run would wait for ever if it waited at all."""
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.sendall(b"GET /events HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert client.recv(10)
        for update in range(1, 20_000):
            server.feed.write(line(update))
        assert ask(server, "/").status == 200


def test_the_next_port_is_taken_where_one_is_in_use(server: LiveServer) -> None:
    with LiveServer(Feed(ABOUT), port=server.port) as other:
        assert server.port < other.port <= server.port + 20
        assert other.url == f"http://127.0.0.1:{other.port}/"
