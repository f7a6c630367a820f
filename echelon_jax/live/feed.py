"""What a live page shows of a run, kept for viewers who come late: a bounded number of rows, and the newest game.

The run puts things in and never waits: no call does more than append under a lock that readers hold for a copy.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable, Mapping
from typing import Any

MOST_ROWS = 2000  # kept; beyond them every second of the older half is dropped
SHOWN = (
    "update",
    "env_steps",
    "env_steps_per_second",
    "win_rate",
    "return_per_mech",
    "zone_share",
    "episode_length",
    "update/entropy",
    "update/kl",
    "update/explained_variance",
    "validation/win_rate",
    "validation/score",
)


class Feed:
    """The rows of a run and its newest game, for any number of readers.

    Args:
        about: what the page says of the run besides its rows, ready for JSON.
    """

    def __init__(self, about: Mapping[str, Any]) -> None:
        self._changed = threading.Condition()
        self._about = dict(about)
        self._rows: list[dict[str, float | None]] = []
        self._game: tuple[int, bytes] | None = None
        self._over = False

    # -- The run's side: a sink of its metrics ---------------------------------------------------------------------

    def write(self, line: Mapping[str, Any]) -> None:
        """Take one line of metrics."""
        self.extend([line])

    def extend(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Take several lines, such as those that a resumed run has on disk."""
        rows = [{name: _plain(line.get(name)) for name in SHOWN} for line in lines]
        with self._changed:
            first = (rows[0]["update"] or 0) if rows else math.inf
            if self._rows and (self._rows[-1]["update"] or 0) >= first:
                # A run that goes on from a checkpoint does the updates after it again.
                self._rows = [row for row in self._rows if (row["update"] or 0) < first]
            self._rows += rows
            if len(self._rows) > MOST_ROWS:
                half = len(self._rows) // 2
                self._rows = self._rows[:half:2] + self._rows[half:]
            self._changed.notify_all()

    def show_game(self, update: int, page: bytes) -> None:
        """Take the page of a game that the policy of an update has played; it replaces the one before."""
        with self._changed:
            self._game = update, page
            self._changed.notify_all()

    def close(self) -> None:
        """Do nothing: the run closes its sinks before its last game is there. `end` says that all is over."""

    def end(self) -> None:
        """Say that the run is over."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    # -- The viewers' side -----------------------------------------------------------------------------------------

    @property
    def game(self) -> tuple[int, bytes] | None:
        """The update of the newest game, and its page."""
        with self._changed:
            return self._game

    def reader(self) -> Reader:
        """Return a reader that has seen nothing yet."""
        return Reader(self)


class Reader:
    """One viewer's place in a feed."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._started = self._ended = False
        self._seen = -math.inf  # the last update
        self._game: int | None = None

    def next(self, timeout: float) -> list[tuple[str, str]]:
        """Return what is new as (event, JSON), and wait for it `timeout` seconds at most; nothing if there is nothing."""
        feed = self._feed
        with feed._changed:
            feed._changed.wait_for(self._is_news, timeout)
            news: list[tuple[str, Any]] = []
            if not self._started:
                news.append(("run", feed._about))
            rows = [row for row in feed._rows if (row["update"] or 0) > self._seen]
            if rows:
                news.append(("rows", rows))
                self._seen = rows[-1]["update"] or 0
            if feed._game is not None and feed._game[0] != self._game:
                self._game = feed._game[0]
                news.append(("game", {"update": self._game}))
            if feed._over and not self._ended:
                news.append(("over", {}))
            self._started, self._ended = True, feed._over
        return [(name, json.dumps(value)) for name, value in news]

    def _is_news(self) -> bool:
        feed = self._feed
        later = bool(feed._rows) and (feed._rows[-1]["update"] or 0) > self._seen
        game = feed._game is not None and feed._game[0] != self._game
        return not self._started or later or game or (feed._over and not self._ended)


def _plain(value: Any) -> float | None:
    """A number that JSON can hold; None for anything else."""
    number = isinstance(value, (int, float)) and math.isfinite(value)
    return value if number else None
