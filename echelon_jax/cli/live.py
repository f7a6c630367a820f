"""`echelon train --watch`: the page of a run while it trains."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path

from echelon_jax.cli.errors import UsageError
from echelon_jax.cli.watch import tell
from echelon_jax.config import EnvConfig
from echelon_jax.evaluation.validation import Validator
from echelon_jax.live.feed import Feed
from echelon_jax.live.games import GameRecorder
from echelon_jax.live.server import LiveServer, is_loopback
from echelon_jax.runs.description import read_lines
from echelon_jax.training.config import TrainConfig


@contextlib.contextmanager
def live_page(
    run_dir: Path, config: TrainConfig, env_config: EnvConfig, host: str, port: int, at_update: int | None
) -> Iterator[tuple[Feed, Callable[[TrainConfig, EnvConfig], Validator]]]:
    """Serve the page of a run; give its sink of metrics, and what makes a validator whose games it shows.

    `at_update` is the update that the run goes on from, None for its last checkpoint.

    Raises:
        UsageError: the address cannot be used.
    """
    team = env_config.team_size
    about = {
        "name": run_dir.absolute().name,
        "what": f"{team} against {team} on {env_config.size_x}x{env_config.size_y}, {config.network} network, "
        f"{config.opponent} opponent, seed {config.seed}",
        "updates": config.updates,
        "validates": bool(config.validation_every),
    }
    feed = Feed(about)
    feed.extend(line for line in read_lines(run_dir) if at_update is None or line["update"] <= at_update)
    try:
        server = LiveServer(feed, host, port)
    except OSError as error:
        raise UsageError(f"watch-host and watch-port must be a free address of this machine: {error}") from error
    games = GameRecorder(run_dir / "replays", env_config, feed, run_dir.absolute().name)
    with server, games:
        tell(f"watch it at {server.url}")
        if not is_loopback(host):
            tell("everybody who reaches this machine can read that page")
        if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            webbrowser.open(server.url)
        yield feed, functools.partial(Validator, on_game=games.take)
        if games.busy:
            tell("finishing the replay of the last validation game ...")
    if games.problem is not None:
        tell(games.problem)
