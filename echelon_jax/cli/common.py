"""What the commands share: the game's flags, the machine's set-up before JAX is imported, a table of games."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from echelon_jax.cli.errors import UsageError, checked
from echelon_jax.config import RULE_SETS, EnvConfig

if TYPE_CHECKING:
    from rich.table import Table


@dataclasses.dataclass(frozen=True)
class GameFlags:
    """The game to play."""

    rules: str = "mended"
    """Rule set: `mended` (docs/differences.md), or `original` to the letter."""
    size: int | None = None
    """Edge of the square map in voxels, at least 20; 28 under mended rules."""
    packs: int = 1
    """Packs of five mechs per team: 1 is 5 against 5, 2 is 10 against 10."""
    mode: str = "full"
    """Observation mode: `full` or `partial`."""
    observation: str | None = None
    """Observation vector: `original` or `modern`; by default modern under mended rules and the original's under original ones."""
    actions: str | None = None
    """Action vector, likewise."""
    reward: str | None = None
    """Reward, likewise (docs/rewards.md)."""

    def config(self, default_size: int) -> EnvConfig:
        """The configuration that these flags ask for.

        Raises:
            UsageError: naming the field and its allowed values.
        """
        if self.rules not in RULE_SETS:
            raise UsageError(f"rules must be one of {', '.join(RULE_SETS)}, got {self.rules!r}")
        size = default_size if self.size is None else self.size
        mended = self.rules == "mended"
        make = EnvConfig.mended if mended else EnvConfig.original
        interface = "modern" if mended else "original"
        return checked(
            make,
            size_x=size,
            size_y=size,
            num_packs=self.packs,
            observation_mode=self.mode,
            observation=interface if self.observation is None else self.observation,
            actions=interface if self.actions is None else self.actions,
            reward=interface if self.reward is None else self.reward,
        )


def set_up_jax(threads: int = 0) -> None:
    """Choose XLA's thread number and a compilation cache; must run before the first import of jax.

    Arguments:
        threads: XLA's CPU threads; 0 leaves the choice to XLA.
    """
    if threads < 0:
        raise UsageError(f"threads must be a whole number from 0, got {threads}")
    if threads:
        os.environ["NPROC"] = str(threads)
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "echelon-jax" / "xla"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ.setdefault("JAX_PERSISTENT_COMPILATION_CACHE_MIN_COMPILE_TIME_SECS", "2")


def games_table(title: str, rows: dict[str, dict[str, float | int]]) -> Table:
    """A table of evaluation results: one row per opponent, own numbers against theirs, per game."""
    from rich.table import Table

    table = Table(title=title)
    for name in ("opponent", "games", "win rate", "95 % interval", "W/D/L", "zone share", "kills", "damage", "seconds"):
        table.add_column(name, justify="left" if name == "opponent" else "right")
    for opponent, s in rows.items():
        table.add_row(
            opponent,
            f"{s['games']}",
            f"{s['win_rate']:.0%}",
            f"{s['win_rate_low']:.0%} to {s['win_rate_high']:.0%}",
            f"{s['wins']}/{s['draws']}/{s['losses']}",
            f"{s['zone_share']:.0%}",
            f"{s['kills_own']:.1f} : {s['kills_other']:.1f}",
            f"{s['damage_own']:.0f} : {s['damage_other']:.0f}",
            f"{s['length_seconds']:.0f}",
        )
    return table
