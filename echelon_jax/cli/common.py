"""What the commands share: the game's flags, the machine's set-up before JAX is imported, a table of games."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from echelon_jax.cli.errors import UsageError, checked
from echelon_jax.cli.fields import given, override_flags
from echelon_jax.config import RULE_SETS, SWITCHES, EnvConfig

if TYPE_CHECKING:
    from rich.table import Table

OLD_RULE_SETS = {"mended": "revised"}  # names that earlier versions had
INTERFACE = ("observation", "actions", "reward")
SWITCH_TEXTS = {
    "spawn_without_overlap": "Mechs spawn apart instead of inside each other.",
    "true_voxel_hp": "Voxels have their material's hit points everywhere.",
    "honour_focus": "A focus that a weapon can reach is its target.",
    "fair_order": "Firing order and wreck rolls are drawn.",
    "own_team_counts_against": "Hurting one's own side is charged, not paid.",
    "clamp_before_collision": "Moves are cut at the map edge before the collision test.",
    "shots_end_at_border": "Shots end at the map's border.",
    "smoke_opens": "Smoke shells open at the end of their flight and never count as hits.",
    "ceiling": "No mech rises above the top of the map.",
    "ams_one_roll": "Each ready heavy gets one roll per missile in reach of its point defence.",
    "zone_on_the_ground": "Only a powered mech near the ground holds the zone.",
    "fair_zone": "The zone is about equally far from both teams.",
    "terrain_on_small_maps": "Small maps keep their terrain.",
    "corridors_complete": "Lanes are carved up to the map's low edges.",
    "tie_is_draw": "Equal scores are decided by hit points, then a draw.",
}
EnvFlags: Any = override_flags(EnvConfig, "EnvFlags", ("num_packs", "observation_mode", *INTERFACE), SWITCH_TEXTS)


@dataclasses.dataclass(frozen=True)
class GameFlags:
    """The game to play."""

    rules: str | None = None
    """Rule set: `revised` (the default, docs/differences.md), or `original` to the letter."""
    size: int | None = None
    """Edge of the square map in voxels, at least 20; 28 under revised rules. `--size-x` and `--size-y` set one edge."""
    packs: int | None = None
    """Packs of five mechs per team: 1 (the default) is 5 against 5, 2 is 10 against 10."""
    mode: str | None = None
    """Observation mode: `full` (the default) or `partial`."""
    observation: str | None = None
    """Observation vector: `original` or `modern`; by default modern under revised rules and the original's under original ones."""
    actions: str | None = None
    """Action vector, likewise."""
    reward: str | None = None
    """Reward, likewise (docs/rewards.md)."""
    more: tyro.conf.OmitArgPrefixes[EnvFlags] = dataclasses.field(default_factory=EnvFlags)

    def config(self, default_size: int, base: dict[str, Any] | None = None) -> EnvConfig:
        """The configuration that these flags ask for.

        Arguments:
            default_size: edge of the map where nothing says otherwise.
            base: fields of a saved configuration, which the flags override; without it the rule set's.

        Raises:
            UsageError: naming the field and its allowed values.
        """
        rules = OLD_RULE_SETS.get(self.rules, self.rules) if self.rules is not None else None
        if rules is not None and rules not in RULE_SETS:
            raise UsageError(f"rules must be one of {', '.join(RULE_SETS)}, got {self.rules!r}")
        fields: dict[str, Any] = {"size_x": default_size, "size_y": default_size} if base is None else dict(base)
        if base is None or rules is not None:
            revised = rules != "original"
            fields |= dict.fromkeys(SWITCHES, revised) | dict.fromkeys(INTERFACE, "modern" if revised else "original")
        named = {"size_x": self.size, "size_y": self.size, "num_packs": self.packs, "observation_mode": self.mode}
        named |= {name: getattr(self, name) for name in INTERFACE}
        fields |= {name: value for name, value in named.items() if value is not None} | given(self.more)
        return checked(EnvConfig, **fields)


def machine_key() -> str:
    """A short name of what compiled programs depend on: architecture and instruction set of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    told = [next((line for line in lines if line.startswith(word)), "") for word in ("model name", "flags", "Features")]
    told.append(platform.processor())
    return f"{platform.machine()}-{hashlib.sha256(repr(told).encode()).hexdigest()[:10]}"


def set_up_jax(threads: int = 0) -> None:
    """Choose XLA's thread number and a compilation cache; must run before the first computation.

    Compiled programs are kept under ~/.cache/echelon-jax/xla/<machine>, so that a program compiled for one processor is never
    loaded on another; JAX_COMPILATION_CACHE_DIR chooses another place, JAX_ENABLE_COMPILATION_CACHE=false keeps none.

    Arguments:
        threads: XLA's CPU threads; 0 leaves the choice to XLA.
    """
    if threads < 0:
        raise UsageError(f"threads must be a whole number from 0, got {threads}")
    if threads:
        os.environ["NPROC"] = str(threads)
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "echelon-jax" / "xla" / machine_key()
    path = os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    least = os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1")
    import jax

    # JAX has read its environment already where it was imported before.
    jax.config.update("jax_compilation_cache_dir", path)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", float(least))


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


def behaviour_table(rows: dict[str, dict[str, Any]]) -> Table:
    """A table of how the games were played: one row per opponent and side."""
    from rich.table import Table

    table = Table(title="how they were played (docs/evaluation.md)")
    columns = {
        "time in zone": lambda b: b["zone"]["in_zone"],
        "first there": lambda b: b["zone"]["first_seconds"],
        "gun shots in reach": lambda b: b["gun_shots_in_reach"],
        "chances taken": lambda b: b["chances_taken"],
        "heat": lambda b: b["heat"]["mean"],
        "over cap": lambda b: b["heat"]["over_cap"],
        "vents hot": lambda b: b["heat"]["vents_when_hot"],
        "vents cool": lambda b: b["heat"]["vents_when_cool"],
    }
    table.add_column("side")
    for name in columns:
        table.add_column(name, justify="right")
    for opponent, row in rows.items():
        for side, whose in ((f"against {opponent}", "own"), (f"{opponent}", "other")):
            values = {name: read(row["behaviour"][whose]) for name, read in columns.items()}
            shown = [
                "-" if value is None else f"{value:.1f} s" if name == "first there" else f"{value:.0%}"
                for name, value in values.items()
            ]
            table.add_row(side, *shown)
    return table
