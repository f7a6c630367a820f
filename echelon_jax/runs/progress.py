"""Progress of a run for a person: phases by name, then a bar with the time left, the speed and numbers of the game.

On a terminal it is a live panel with sparklines; elsewhere it is a line every few seconds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
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
# What matters: name in the window, title, format, and the range of the sparkline (None: that of its values).
WATCHED: tuple[tuple[str, str, str, tuple[float, float] | None], ...] = (
    ("win_rate", "win rate", ".0%", (0.0, 1.0)),
    ("return_per_mech", "return", ".1f", None),
    ("zone_share", "zone share", ".0%", (0.0, 1.0)),
)


def _show(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)


def sparkline(values: Sequence[float], bounds: tuple[float, float] | None = None) -> str:
    """Return values as a row of bars. The lowest and the highest value (or `bounds`) have the smallest and largest bar."""
    if not values:
        return ""
    low, high = (min(values), max(values)) if bounds is None else bounds
    span = high - low
    top = len(SPARKS) - 1
    return "".join(SPARKS[0 if span <= 0 else max(0, min(top, round((v - low) / span * top)))] for v in values)


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
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
        )
        self.history: dict[str, deque[float]] = {name: deque(maxlen=KEPT) for name, *_ in WATCHED}
        self.panel = Live(console=self.console, refresh_per_second=4, get_renderable=self.render)
        self.task: TaskID | None = None
        self.started = time.perf_counter()
        self.last_line = 0.0

    def __enter__(self) -> Progress:
        c, e = self.config, self.env_config
        self.note(
            f"{e.team_size} against {e.team_size} on {e.size_x}x{e.size_y}x{e.size_z}, {c.network} network "
            f"({network_size(make_network(c, e), e.team_size)}), "
            f"against {c.opponent}: {c.updates} updates of {c.arenas} arenas x {c.rollout_steps} steps, seed {c.seed}, "
            f"into {self.run_dir}"
        )
        self.started = time.perf_counter()
        if self.live:
            self.panel.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.live:
            self.panel.stop()

    def render(self) -> Group:
        """The bar, and a sparkline for everything watched."""
        table = Table.grid(padding=(0, 2))
        for name, title, form, bounds in WATCHED:
            values = self.history[name]
            if values:
                table.add_row(title, sparkline(values, bounds), format(values[-1], form))
        return Group(self.bar, table)

    def note(self, text: str) -> None:
        """Print a line above the bar. If the output is closed, print nothing: the run goes on, and its files hold everything."""
        try:
            self.console.print(text)
        except OSError:
            self.console.quiet = True

    def phase(self, name: str) -> None:
        """Show the name of a phase before training begins."""
        self.note(f"[{time.perf_counter() - self.started:5.1f} s] {name} ...")

    def compiled(self, seconds: float) -> None:
        """Show how long compiling took, and start the bar."""
        self.note(f"[{time.perf_counter() - self.started:5.1f} s] compiled in {seconds:.1f} s; training")
        self.task = self.bar.add_task("updates", total=self.config.updates, numbers="")

    def advance(self, update: int, line: dict[str, Any], window: dict[str, Any]) -> None:
        """Show one call: its own speed and losses, and rates over the window."""
        for name, values in self.history.items():
            if window.get(name) is not None:
                values.append(window[name])
        speed = f"{line['env_steps_per_second']:.0f} steps/s"
        losses = (
            f"damage {_show(window['per_episode/damage_learner'], '.0f')}  "
            f"policy loss {_show(line['update/policy_loss'], '+.3f')}  value loss {_show(line['update/value_loss'], '.2f')}"
        )
        if self.live and self.task is not None:
            self.bar.update(self.task, completed=update, numbers=f"{speed}  {losses}")
            return
        now = time.perf_counter()
        if now - self.last_line > SECONDS_BETWEEN_LINES or update >= self.config.updates:
            self.last_line = now
            shown = (
                f"return {_show(window['return_per_mech'], '.1f')}  win {_show(window['win_rate'], '.0%')}  "
                f"zone {_show(window['zone_share'], '.0%')}"
            )
            self.note(
                f"[{now - self.started:5.1f} s] update {update} of {self.config.updates}: {speed}  {shown}  {losses}"
            )

    def finished(self, checkpoint: Path, stopped: bool) -> None:
        """Show where the checkpoint is."""
        self.note(
            f"{'Stopped' if stopped else 'Done'} after {time.perf_counter() - self.started:.0f} s; saved {checkpoint}"
        )
