"""`echelon train --dry-run`: the plan and the memory of a run, from shapes alone. Nothing is compiled or written."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

from rich.table import Table

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.gpu.flags import described
from echelon_jax.policies.network_size import network_size
from echelon_jax.policies.registry import make_network
from echelon_jax.runs.memory import needs
from echelon_jax.runs.runner import calls_between_saves
from echelon_jax.terminal import PlainConsole
from echelon_jax.training.config import TrainConfig

# Fields in which two runs must agree for the speed of one to say something about the other.
SIZES = ("arenas", "devices", "rollout_steps", "epochs", "minibatches", "network", "hidden", "lstm", "opponent")
SINCE = {"accumulate": 1, "remat": False, "memory": "lstm"}  # fields that older runs lack, with what those runs did
SAME_SPEED = (*SIZES, *SINCE)


def known_rate(config: TrainConfig, env_config: EnvConfig, runs: Path) -> tuple[float, Path] | None:
    """Environment steps per second of the latest run under `runs` of the same game and the same sizes, and that run."""
    wanted = {f: getattr(config, f) for f in SAME_SPEED}
    best: tuple[float, float, Path] | None = None
    for file in runs.glob("*/config.json"):
        log = file.parent / "metrics.jsonl"
        try:
            described = json.loads(file.read_text())
            same_game = EnvConfig(**described["env"]) == env_config
            train = {**SINCE, **described["train"]}
            same = same_game and {f: train[f] for f in SAME_SPEED} == wanted
            lines = log.read_text().splitlines() if same else []
            rates = sorted(json.loads(line)["env_steps_per_second"] for line in lines)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a foreign or unfinished directory knows no rate
        if rates and (best is None or log.stat().st_mtime > best[0]):
            best = log.stat().st_mtime, rates[len(rates) // 2], file.parent
    return None if best is None else best[1:]


def print_plan(
    config: TrainConfig,
    env_config: EnvConfig,
    run_dir: Path,
    save_every: int,
    eval_games: int,
    runs: Path = Path("runs"),
    fits: str = "",
    as_json: bool = False,
) -> None:
    """Print shapes, memory and plan of a run, as a table or as one JSON document; its memory is in bytes there.

    `fits` says into what the arenas were made to fit, if they were.
    """
    c, e, memory = config, env_config, needs(config, env_config)
    steps = c.env_steps
    calls = c.updates // c.updates_per_call
    between = calls_between_saves(save_every)
    saves = math.ceil(calls / between)
    rate = known_rate(c, e, runs)
    if as_json:
        shapes = {
            "observation": [c.arenas, e.num_mechs, observation_layout(e).size],
            "actions": [c.arenas, e.num_mechs, action_layout(e).size],
        }
        told = {
            "run_dir": str(run_dir),
            "updates": c.updates,
            "env_steps": steps,
            "checkpoints": saves,
            "expected_seconds": None if rate is None else steps / rate[0],
            "parameters": memory.parameters,
            "shapes": shapes,
            "memory": memory.rows,
            "train": dataclasses.asdict(c),
            "env": dataclasses.asdict(e),
        }
        print(json.dumps(told, indent=1))
        return
    table = Table(title=f"Plan of {run_dir} (nothing was compiled or written)", show_header=False)
    table.add_row(
        "game", f"{e.team_size} against {e.team_size} on {e.size_x}x{e.size_y}x{e.size_z}, {e.max_steps} decisions"
    )
    table.add_row("observation", f"float32 [{c.arenas}, {e.num_mechs}, {observation_layout(e).size}], {e.observation}")
    table.add_row("actions", f"float32 [{c.arenas}, {e.num_mechs}, {action_layout(e).size}], {e.actions}")
    table.add_row("reward", e.reward)
    table.add_row("network", f"{c.network}, {network_size(make_network(c, e), e.team_size)}")
    table.add_row(
        "rollout",
        f"{c.rollout_steps} decisions x {c.arenas} arenas x {c.seats // c.arenas * e.team_size} mechs = "
        f"{c.rollout_steps * c.seats * e.team_size:,} decisions of mechs",
    )
    parts = f" in {c.accumulate} parts" if c.accumulate > 1 else ""
    again = ", activations computed again" if c.remat else ""
    minibatches = f"{c.minibatches} minibatches of {c.arenas // c.minibatches} arenas{parts}{again}"
    table.add_row("update", f"{c.epochs} epochs x {minibatches}")
    table.add_row("kernels", c.kernels)
    table.add_section()
    table.add_row("updates", f"{c.updates:,} in {calls:,} calls of {c.updates_per_call}")
    table.add_row("environment steps", f"{steps:,}")
    table.add_row(
        "checkpoints", f"{saves:,}: every {between} calls and at the end; a crash repeats {save_every} at most"
    )
    table.add_row(
        "worlds", f"{c.bank_size} at a time, {c.bank_size + c.bank_swaps(c.updates - 1) * c.bank_swap_size:,} in all"
    )
    validation = (
        f"every {c.validation_every} updates, {c.validation_games} games against each: {c.validation_opponents}"
    )
    table.add_row("validation", f"{validation}; saved each time" if c.validation_every else "none")
    table.add_row("evaluation", f"{eval_games} games against each: scripted, random" if eval_games else "none")
    if rate is None:
        table.add_row("expected time", "not known: no run of this game and these sizes under runs/")
    else:
        table.add_row("expected time", f"{steps / rate[0] / 60:.1f} min at {rate[0]:,.0f} steps/s, as in {rate[1]}")
    for flag, why in described():
        table.add_row("on a GPU", f"{flag} ({why})")
    table.add_section()
    if fits:
        table.add_row("arenas", f"{c.arenas:,}, which fit into {fits}")
    for name, size in memory.rows.items():
        table.add_row(f"memory: {name}", f"{size / 2**20:,.1f} MiB")
    each = " on each device" if c.devices > 1 else ""
    table.add_row("memory: sum", f"{memory.total / 2**20:,.1f} MiB{each}, an estimate (docs/scale.md)")
    PlainConsole().print(table)
