"""Progress of a run for a person: its phase, then a bar with the time left, and the five numbers that matter.

On a terminal it is one live block of at most 80 columns, with a sparkline for every number; elsewhere it is a line now and then.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from echelon_jax.config import EnvConfig
from echelon_jax.policies.network_size import network_size
from echelon_jax.policies.registry import make_network
from echelon_jax.terminal import PlainConsole
from echelon_jax.training.config import TrainConfig

SECONDS_BETWEEN_LINES = 5.0
SPARKS = "▁▂▃▄▅▆▇█"
KEPT = 40  # values of a sparkline
SPEED_OVER = 600.0  # seconds that the time left is estimated from; one call may take a minute


class Watched(NamedTuple):
    """A number that is shown: its metric, its name for a person, its format, and the range of its sparkline (None: its own)."""

    metric: str
    title: str
    form: str
    bounds: tuple[float, float] | None = None


SPEED = Watched("env_steps_per_second", "steps/s", ",.0f")
WIN_RATE = Watched("win_rate", "win rate", ".0%", (0.0, 1.0))
RETURN = Watched("return_per_mech", "return", ".1f")
ZONE_SHARE = Watched("zone_share", "zone share", ".0%", (0.0, 1.0))
DAMAGE = Watched("per_episode/damage_learner", "damage", ",.0f")
VALIDATION = Watched("validation/win_rate", "validation wins", ".0%", (0.0, 1.0))


def watched(config: TrainConfig) -> tuple[Watched, ...]:
    """Return the five numbers that are shown of a run."""
    return SPEED, WIN_RATE, RETURN, ZONE_SHARE, VALIDATION if config.validation_every else DAMAGE


def sparkline(values: Sequence[float], bounds: tuple[float, float] | None = None) -> str:
    """Return values as a row of bars. The lowest and the highest value (or `bounds`) have the smallest and largest bar."""
    if not values:
        return ""
    low, high = (min(values), max(values)) if bounds is None else bounds
    span = high - low
    top = len(SPARKS) - 1
    return "".join(SPARKS[0 if span <= 0 else max(0, min(top, round((v - low) / span * top)))] for v in values)


def _short(one: Watched, values: Sequence[float]) -> str:
    """The last value of a number with the first word of its name."""
    last = format(values[-1], one.form) if values else "-"
    return f"{last} {one.title}" if one is SPEED else f"{one.title.split()[0]} {last}"


class Progress:
    """Progress of one run on a console; used as a context manager around it."""

    def __init__(
        self, config: TrainConfig, env_config: EnvConfig, run_dir: Path, console: Console | None = None
    ) -> None:
        self.config, self.env_config, self.run_dir = config, env_config, run_dir
        self.console = console or PlainConsole()
        self.live = self.console.is_terminal
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("left,"),
            TimeElapsedColumn(),
            TextColumn("so far"),
            console=self.console,
            speed_estimate_period=SPEED_OVER,
        )
        self.watched = watched(config)
        self.history: dict[str, deque[float]] = {one.metric: deque(maxlen=KEPT) for one in self.watched}
        self.doing = "starting"
        self.training = False
        self.task = self.bar.add_task("updates", total=config.updates, start=False)
        self.started = time.perf_counter()
        self.last_line = 0.0
        self.panel = Live(console=self.console, refresh_per_second=4, get_renderable=self.render)

    def __enter__(self) -> Progress:
        c, e = self.config, self.env_config
        size = network_size(make_network(c, e), e.team_size)
        self.note(
            f"game      {e.team_size} against {e.team_size} on {e.size_x}x{e.size_y}x{e.size_z}, {c.opponent} opponent"
        )
        self.note(f"network   {c.network}, {size}")
        self.note(f"training  {c.updates} updates of {c.arenas} arenas x {c.rollout_steps} steps, seed {c.seed}")
        self.note(f"into      {self.run_dir}")
        self.started = time.perf_counter()
        if self.live:
            self.panel.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.live:
            self.panel.stop()

    @property
    def seconds(self) -> float:
        """Seconds since the run began here."""
        return time.perf_counter() - self.started

    def render(self) -> Group:
        """The live block: what goes on before training begins, then the bar and a row for every number that has a value."""
        if not self.training:
            return Group(f"{self.doing} ... {self.seconds:.0f} s")
        table = Table.grid(padding=(0, 2))
        table.add_column()
        table.add_column(justify="right")
        for one in self.watched:
            if values := self.history[one.metric]:
                table.add_row(one.title, format(values[-1], one.form), sparkline(values, one.bounds))
        return Group(self.bar, table)

    def note(self, text: str) -> None:
        """Print a line above the bar. If the output is closed, print nothing: the run goes on, and its files hold everything.

        A line that is longer than the terminal is not cut into lines, so that a path in it can be copied.
        """
        try:
            self.console.print(text, soft_wrap=True)
        except OSError:
            self.console.quiet = True

    def phase(self, name: str) -> None:
        """Show the name of a phase before training begins."""
        self.doing = name
        if not self.live:
            self.note(f"[{self.seconds:5.1f} s] {name} ...")

    def compiled(self, seconds: float) -> None:
        """Show how long compiling took, and start the bar."""
        self.note(f"[{self.seconds:5.1f} s] compiled in {seconds:.1f} s; training")
        self.training = True
        self.bar.start_task(self.task)

    def advance(self, update: int, line: dict[str, Any], window: dict[str, Any]) -> None:
        """Show one call: the numbers of `line` that concern the call alone, and those of `window`, over the last few calls."""
        shown = {**line, **{name: value for name, value in window.items() if value is not None}}
        for name, values in self.history.items():
            if shown.get(name) is not None:
                values.append(shown[name])
        self.bar.update(self.task, completed=update)
        if self.live:
            return
        now = time.perf_counter()
        if now - self.last_line > SECONDS_BETWEEN_LINES or update >= self.config.updates:
            self.last_line = now
            numbers = "  ".join(_short(one, self.history[one.metric]) for one in self.watched)
            self.note(f"[{self.seconds:5.0f} s] {update}/{self.config.updates}  {numbers}")

    def finished(self, checkpoint: Path, stopped: bool) -> None:
        """Show where the checkpoint is."""
        self.note(f"{'stopped' if stopped else 'done'} after {self.seconds:.0f} s; saved {checkpoint}")
