"""`echelon train --dry-run`: the plan and the memory of a run, from shapes alone. Nothing is compiled or written."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import jax
from rich.table import Table

from echelon_jax.config import EnvConfig
from echelon_jax.env.autoreset import AutoReset
from echelon_jax.env.environment import Echelon
from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.env.shapes import abstract_bank, tree_bytes
from echelon_jax.env.state import EnvParams
from echelon_jax.gpu.flags import described
from echelon_jax.policies.network_size import network_size
from echelon_jax.policies.registry import make_network
from echelon_jax.runs.runner import calls_between_saves
from echelon_jax.sim.rules import sim_rules
from echelon_jax.terminal import PlainConsole
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.reward_weights import reward_weights
from echelon_jax.training.trainer import TrainState, make_train

# Fields in which two runs must agree for the speed of one to say something about the other.
SAME_SPEED = ("arenas", "devices", "rollout_steps", "epochs", "minibatches", "network", "hidden", "lstm", "opponent")


def stacked_bytes(jaxpr: Any) -> list[tuple[int, int]]:
    """For each outermost loop of a program: bytes that it stacks over its steps, and the most that an inner loop stacks."""
    found: list[tuple[int, int]] = []
    for equation in jaxpr.eqns:
        inside = []
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                inside += stacked_bytes(inner)
        if equation.primitive.name == "scan":
            body = equation.params["jaxpr"]
            body = getattr(body, "jaxpr", body)
            # A carry leaves the loop in the shape that it has inside; what is stacked up has an axis of steps more.
            pairs = zip(equation.outvars, body.outvars, strict=True)
            stacked = [var for var, inner in pairs if var.aval.ndim > inner.aval.ndim]
            own = sum(var.aval.size * var.aval.dtype.itemsize for var in stacked)
            found.append((own, max((max(pair) for pair in inside), default=0)))
        else:
            found += inside
    return found


def memory(config: TrainConfig, env_config: EnvConfig) -> dict[str, int]:
    """Parameters, and bytes of what a run holds on the device, by name.

    `rollout` is what the T decisions of a rollout leave for the update. `unrolled` is the most that the update itself stacks over
    them: the activations of one minibatch that its gradient needs. XLA's own scratch memory is not included. With several devices
    the numbers are those of all of them together.
    """
    config = dataclasses.replace(config, devices=1)
    trainer = make_train(AutoReset(Echelon(env_config)), config)
    bank = abstract_bank(env_config, config.bank_size)
    rules, weights = jax.eval_shape(lambda: (sim_rules(env_config), reward_weights_of(config, env_config)))
    env_params = EnvParams(rules=rules, rewards=weights, bank=bank)
    key = jax.eval_shape(lambda: jax.random.key(0))
    state: TrainState = jax.eval_shape(trainer.init, key, env_params)
    loops = stacked_bytes(jax.make_jaxpr(trainer.update)(state, env_params).jaxpr)
    rollout = max(loops)
    loops.remove(rollout)
    arenas = state.runner_state.env_state
    return {
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(state.params)),
        "network": tree_bytes(state.params),
        "optimiser": tree_bytes(state.optimizer),
        "arenas": tree_bytes(arenas),
        "observations and memories": tree_bytes(state.runner_state) - tree_bytes(arenas),
        "worlds": tree_bytes(bank),
        "rollout": rollout[0],
        "unrolled": max((most for _, most in loops), default=0),
    }


def reward_weights_of(config: TrainConfig, env_config: EnvConfig) -> Any:
    """`reward_weights`, computed outside of any trace."""
    with jax.ensure_compile_time_eval():
        return reward_weights(config, env_config)


def known_rate(config: TrainConfig, env_config: EnvConfig, runs: Path) -> tuple[float, Path] | None:
    """Environment steps per second of the latest run under `runs` of the same game and the same sizes, and that run."""
    wanted = {f: getattr(config, f) for f in SAME_SPEED}
    best: tuple[float, float, Path] | None = None
    for file in runs.glob("*/config.json"):
        log = file.parent / "metrics.jsonl"
        try:
            described = json.loads(file.read_text())
            same_game = EnvConfig(**described["env"]) == env_config
            same = same_game and {f: described["train"][f] for f in SAME_SPEED} == wanted
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
    as_json: bool = False,
) -> None:
    """Print shapes, memory and plan of a run, as a table or as one JSON document; its memory is in bytes there."""
    c, e, needs = config, env_config, memory(config, env_config)
    parameters = needs.pop("parameters")
    steps = c.updates * c.decisions_per_update
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
            "parameters": parameters,
            "shapes": shapes,
            "memory": needs,
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
        f"{c.rollout_steps} decisions x {c.arenas} arenas x {e.team_size} mechs = "
        f"{c.decisions_per_update * e.team_size:,} decisions of mechs",
    )
    table.add_row("update", f"{c.epochs} epochs x {c.minibatches} minibatches of {c.arenas // c.minibatches} arenas")
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
    for name, size in needs.items():
        table.add_row(f"memory: {name}", f"{size / 2**20:,.1f} MiB")
    table.add_row("memory: sum", f"{sum(needs.values()) / 2**20:,.1f} MiB, and what XLA needs as scratch")
    PlainConsole().print(table)
