"""What a person sees of a run: phases by name, then a bar with speed, return, win rate, zone share, losses and time left.

On a terminal a live bar; elsewhere a line every few seconds.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from echelon_jax.config import EnvConfig
from echelon_jax.learn.config import TrainConfig

SECONDS_BETWEEN_LINES = 5.0


def _show(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)


class Progress:
    """Progress of one run on a console; used as a context manager around it."""

    def __init__(
        self, config: TrainConfig, env_config: EnvConfig, run_dir: Path, console: Console | None = None
    ) -> None:
        self.config, self.env_config, self.run_dir = config, env_config, run_dir
        self.console = console or Console()
        self.live = self.console.is_terminal
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.live,
        )
        self.task: TaskID | None = None
        self.started = time.perf_counter()
        self.last_line = 0.0

    def __enter__(self) -> Progress:
        c, e = self.config, self.env_config
        self.console.print(
            f"{e.team_size} against {e.team_size} on {e.size_x}x{e.size_y}x{e.size_z}, {c.network} network, "
            f"against {c.opponent}: {c.updates} updates of {c.arenas} arenas x {c.rollout_steps} steps, seed {c.seed}, "
            f"into {self.run_dir}"
        )
        self.started = time.perf_counter()
        self.bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.bar.stop()

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self.console.print(text)

    def phase(self, name: str) -> None:
        """Say what is going on before training begins."""
        self.note(f"[{time.perf_counter() - self.started:5.1f} s] {name} ...")

    def compiled(self, seconds: float) -> None:
        """Say how long compiling took and start the bar."""
        self.note(f"[{time.perf_counter() - self.started:5.1f} s] compiled in {seconds:.1f} s; training")
        self.task = self.bar.add_task("updates", total=self.config.updates, numbers="")

    def advance(self, update: int, line: dict[str, Any], window: dict[str, Any]) -> None:
        """Show one launch: its own speed and losses, and rates over the window."""
        numbers = (
            f"{line['env_steps_per_second']:.0f} steps/s  return {_show(window['return_per_mech'], '.1f')}  "
            f"win {_show(window['win_rate'], '.0%')}  zone {_show(window['zone_share'], '.0%')}  "
            f"damage {_show(window['per_episode/damage_learner'], '.0f')}  "
            f"policy loss {_show(line['update/policy_loss'], '+.3f')}  value loss {_show(line['update/value_loss'], '.2f')}"
        )
        if self.live and self.task is not None:
            self.bar.update(self.task, completed=update, numbers=numbers)
            return
        now = time.perf_counter()
        if now - self.last_line > SECONDS_BETWEEN_LINES or update >= self.config.updates:
            self.last_line = now
            self.note(f"[{now - self.started:5.1f} s] update {update} of {self.config.updates}: {numbers}")

    def finished(self, checkpoint: Path, stopped: bool) -> None:
        """Say where the checkpoint is."""
        self.note(
            f"{'Stopped' if stopped else 'Done'} after {time.perf_counter() - self.started:.0f} s; saved {checkpoint}"
        )
