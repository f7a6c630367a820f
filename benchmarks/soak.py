"""Long random play that must leave nothing wrong behind: `python benchmarks/soak.py --games 10000`.

Plays games of uniform random actions on both sides under the revised rules, with their modern interface, and counts over all
decision steps: observations or rewards that are not finite, living mechs inside a wall or above the map, shots and clouds that
found no slot, and mechs that lived through a whole game of a minute without ever leaving their spawn. Prints the counts; exit
status 1 if any is not 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from echelon_jax.env.interfaces import action_layout
from echelon_jax.fields import seed_argument
from echelon_jax.jax_setup import set_up_jax

STEPS_PER_CALL = 40
SPAWN_RADIUS = 0.5  # voxels; who has never been farther from its spawn is locked
FULL_GAME = 200  # decision steps that a game must last to judge that
WRONG = ("not_finite", "inside_a_wall", "above_the_map", "locked_at_spawn", "lost_shots", "lost_clouds")  # must be 0
SUNK = 1e-3  # a box may touch a wall within rounding


def make_call(env: Any, arenas: int) -> Any:
    """A compiled call of STEPS_PER_CALL random decision steps: (params, carry, key) -> (carry, counts)."""
    import jax
    import jax.numpy as jnp

    from echelon_jax.env.autoreset import AutoReset
    from echelon_jax.sim.geometry import length3
    from echelon_jax.sim.grid import levels_hit, levels_under
    from echelon_jax.sim.rules import MAX_BOX_COLUMNS

    config, resetting = env.config, AutoReset(env)

    def walled(params: Any, state: Any) -> Any:
        """Living mechs whose box, shrunk by a rounding error, meets a colliding voxel."""
        position = state.sim.mechs.position.reshape(-1, 3)
        half = jnp.tile(params.rules.half, (arenas, 1)) - SUNK
        arena = jnp.repeat(jnp.arange(arenas, dtype=jnp.int32), config.num_mechs)
        lo, hi = position - half, position + half
        word = levels_under(
            config, state.sim.grid.collides, arena, (lo[:, 0], lo[:, 1]), (hi[:, 0], hi[:, 1]), MAX_BOX_COLUMNS
        )
        return levels_hit(config, word, lo[:, 2], hi[:, 2]).reshape(arenas, -1) & state.sim.mechs.alive

    def one(params: Any, carry: Any, key: Any) -> Any:
        state, home, farthest = carry
        env_key, action_key = jax.random.split(key)
        shape = (arenas, config.num_mechs, action_layout(config).size)
        actions = jax.random.uniform(action_key, shape, jnp.float32, -1.0, 1.0)
        state, step = resetting.step_batch(jax.random.split(env_key, arenas), state, actions, params)
        over, mechs = step.episode_over, state.sim.mechs
        judged = over & (step.info.step_count >= FULL_GAME)
        still = judged[:, None] & step.info.alive & (farthest < SPAWN_RADIUS)
        home = jnp.where(over[:, None, None], mechs.position, home)
        farthest = jnp.where(over[:, None], 0.0, jnp.maximum(farthest, length3(mechs.position - home)))
        top = mechs.position[..., 2] + params.rules.half[:, 2]
        finite = jnp.isfinite(step.final_observation).all((1, 2)) & jnp.isfinite(step.reward).all(1)
        counts = {
            "games": over.sum(),
            "judged": (judged[:, None] & step.info.alive).sum(),
            "steps": jnp.int32(arenas),
            "not_finite": (~finite).sum(),
            "inside_a_wall": walled(params, state).sum(),
            "above_the_map": (mechs.alive & (top > config.size_z + SUNK)).sum(),
            "locked_at_spawn": still.sum(),
            "lost_shots": jnp.where(over, step.info.lost_shots, 0).sum(),
            "lost_clouds": jnp.where(over, step.info.lost_clouds, 0).sum(),
        }
        return (state, home, farthest), counts

    def call(params: Any, carry: Any, key: Any) -> Any:
        carry, counts = jax.lax.scan(lambda c, k: one(params, c, k), carry, jax.random.split(key, STEPS_PER_CALL))
        return carry, jax.tree.map(lambda x: x.sum(0), counts)

    return jax.jit(call, donate_argnums=1)


def soak(games: int, arenas: int, size: int, seed: int, rules: str, worlds: int = 1024) -> dict[str, Any]:
    """Play at least `games` games on that many worlds and return the counts."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from echelon_jax.config import EnvConfig
    from echelon_jax.env.environment import Echelon
    from echelon_jax.worldgen.bank import bank_seeds, generate_worlds

    make = EnvConfig.revised if rules == "revised" else EnvConfig.original
    env = Echelon(make(size_x=size, size_y=size))
    params = env.params(env.make_bank(generate_worlds(env.config, bank_seeds(seed, 0, 0, worlds))))
    call = make_call(env, arenas)
    state, _ = jax.jit(env.reset_batch)(jax.random.split(jax.random.key(seed), arenas), params)
    position = state.sim.mechs.position
    carry = (state, position + 0.0, jnp.zeros(position.shape[:2], jnp.float32))
    total: dict[str, int] = {"games": 0}
    began, round_number = time.perf_counter(), 0
    while total["games"] < games:
        carry, counts = call(params, carry, jax.random.fold_in(jax.random.key(seed + 1), round_number))
        round_number += 1
        for name, value in counts.items():
            total[name] = total.get(name, 0) + int(np.asarray(value))
        if sys.stderr.isatty():
            print(f"\r{total['games']} of {games} games", end="", file=sys.stderr, flush=True)
    wall = time.perf_counter() - began
    return {"rules": rules, "size": size, "arenas": arenas, "worlds": worlds, **total, "wall_seconds": wall}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=10_000)
    parser.add_argument("--arenas", type=int, default=256)
    parser.add_argument("--worlds", type=int, default=1024)
    parser.add_argument("--size", type=int, default=40)
    parser.add_argument("--seed", type=seed_argument, default=0)
    parser.add_argument("--rules", choices=("revised", "original"), default="revised")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    set_up_jax(args.threads)
    report = soak(args.games, args.arenas, args.size, args.seed, args.rules, args.worlds)
    print(json.dumps(report, indent=1))
    return 1 if any(report[name] for name in WRONG) else 0


if __name__ == "__main__":
    sys.exit(main())
