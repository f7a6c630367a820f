"""The cost of the revised rules and of the modern observation: `python benchmarks/costs.py`.

There are two comparisons. Each runs its two sides in turn, in one process with one thread, and measures CPU time:

- switches: an environment step under random actions with all fifteen switches on against none, resets included, observation,
  actions and reward the original's on both sides;
- observation: the modern observation against the original's, of the same states, from start to close fight.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from echelon_jax.env.interfaces import action_layout, observation_layout
from echelon_jax.jax_setup import set_up_jax

SIZE = 60
STEPS_PER_CALL = 48
AROUND = 8.0  # voxels from the zone's rim within which mechs are scattered for an observation


def random_play(env: Any, arenas: int, worlds: int = 64) -> tuple[Any, Any, Any]:
    """(play, state, params): compiled random decisions,  STEPS_PER_CALL steps, and where it begins."""
    import jax
    import jax.numpy as jnp

    from echelon_jax.env.autoreset import AutoReset
    from echelon_jax.worldgen.bank import bank_seeds, generate_worlds

    config, resetting = env.config, AutoReset(env)
    params = env.params(env.make_bank(generate_worlds(config, bank_seeds(0, 0, 0, worlds))))

    def one(params: Any, state: Any, key: Any) -> tuple[Any, Any]:
        env_key, action_key = jax.random.split(key)
        shape = (arenas, config.num_mechs, action_layout(config).size)
        actions = jax.random.uniform(action_key, shape, jnp.float32, -1.0, 1.0)
        state, step = resetting.step_batch(jax.random.split(env_key, arenas), state, actions, params)
        # Every result is used, so that nothing is optimised away.
        return state, step.observation.sum() + step.reward.sum() + step.final_observation[:, 0, 0].sum()

    def play(params: Any, state: Any, key: Any) -> tuple[Any, Any]:
        return jax.lax.scan(lambda s, k: one(params, s, k), state, jax.random.split(key, STEPS_PER_CALL))

    state, _ = jax.jit(env.reset_batch)(jax.random.split(jax.random.key(0), arenas), params)
    return jax.jit(play, donate_argnums=1), state, params


def switches(arenas: int, repeats: int) -> dict[str, Any]:
    """CPU microseconds of an environment step with all switches on and with none."""
    import jax

    from echelon_jax.config import EnvConfig
    from echelon_jax.env.environment import Echelon

    kept = {"size_x": SIZE, "size_y": SIZE, "observation": "original", "actions": "original", "reward": "original"}
    games = {"none": EnvConfig.original(size_x=SIZE, size_y=SIZE), "all": EnvConfig(**kept)}
    plays = {name: list(random_play(Echelon(config), arenas)) for name, config in games.items()}
    spent = dict.fromkeys(games, 0.0)
    calls = repeats * games["none"].max_steps // STEPS_PER_CALL  # whole episodes, in step with each other
    for number in range(-1, calls):
        for name, (play, state, params) in plays.items():
            began = time.process_time()
            plays[name][1], used = play(params, state, jax.random.fold_in(jax.random.key(1), number + 1))
            used.block_until_ready()
            if number >= 0:  # the first compiles
                spent[name] += time.process_time() - began
    steps = calls * STEPS_PER_CALL * arenas
    cost = {name: 1e6 * seconds / steps for name, seconds in spent.items()}
    return {"arenas": arenas, "env_steps": steps, "microseconds": cost, "ratio": cost["all"] / cost["none"]}


def advance(env: Any, arenas: int, worlds: int = 16) -> tuple[Any, Any]:
    """(rules, state): each arena at another moment of the way from the spawns to a place in or around the zone, no smoke.

    Teams that have just started and teams in close fight are the two ends; everybody moves, so everybody is heard.
    """
    import jax
    import jax.numpy as jnp

    from echelon_jax.worldgen.bank import bank_seeds, generate_worlds

    params = env.params(env.make_bank(generate_worlds(env.config, bank_seeds(0, 0, 0, worlds))))
    state, _ = env.reset_batch(jax.random.split(jax.random.key(0), arenas), params)
    mechs, zone = state.sim.mechs, state.arena_map.zone
    away, angle, yaw = jax.random.uniform(jax.random.key(1), (3, *mechs.yaw.shape))
    moment = jax.random.uniform(jax.random.key(2), (arenas, 1, 1))
    reach, angle = (zone[:, 2:] + AROUND) * jnp.sqrt(away), 2 * jnp.pi * angle
    goal = zone[:, None, :2] + jnp.stack([reach * jnp.cos(angle), reach * jnp.sin(angle)], -1)
    start = mechs.position[..., :2]
    position = jnp.clip(start + moment * (goal - start), 2.0, jnp.asarray([env.config.size_x, env.config.size_y]) - 2.0)
    mechs = mechs.replace(
        position=mechs.position.at[..., :2].set(position), yaw=6.28 * yaw, loudness=jnp.ones_like(mechs.loudness)
    )
    return params.rules, state.replace(sim=state.sim.replace(mechs=mechs))


def observation(arenas: int, repeats: int, packs: int, mode: str) -> dict[str, Any]:
    """CPU microseconds per arena of the two observations, of the same states."""
    import jax
    import jax.numpy as jnp

    from echelon_jax.config import EnvConfig
    from echelon_jax.env.environment import Echelon
    from echelon_jax.env.interfaces import observe

    game = {"size_x": SIZE, "size_y": SIZE, "num_packs": packs, "observation_mode": mode}
    configs = {name: EnvConfig(**game, observation=name, actions=name) for name in ("original", "modern")}
    rules, state = advance(Echelon(configs["modern"]), arenas)

    def looking(config: Any) -> Any:
        # The last result is written over, so that no time goes into asking the system for memory.
        run = jax.jit(lambda rules, state, last: observe(config, rules, state), donate_argnums=2, keep_unused=True)
        shape = (arenas, config.num_mechs, observation_layout(config).size)
        seen = state if config.observation == "modern" else state.replace(memory=None)
        return run, seen, jnp.zeros(shape, jnp.float32)

    looks = {name: list(looking(config)) for name, config in configs.items()}
    spent: dict[str, list[float]] = {name: [] for name in looks}
    for number in range(-1, repeats):
        for name, (run, seen, last) in looks.items():
            began = time.process_time()
            looks[name][2] = run(rules, seen, last)[0].observation
            jax.block_until_ready(looks[name][2])
            if number >= 0:
                spent[name].append(time.process_time() - began)
    cost = {name: 1e6 * sorted(seconds)[len(seconds) // 2] / arenas for name, seconds in spent.items()}
    return {"arenas": arenas, "repeats": repeats, "microseconds": cost, "ratio": cost["modern"] / cost["original"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=("switches", "observation", "all"), default="all")
    parser.add_argument("--arenas", type=int, default=256)
    parser.add_argument("--games", type=int, default=4, help="episodes an arena plays for the switches")
    parser.add_argument("--repeats", type=int, default=40, help="observations timed")
    parser.add_argument("--packs", type=int, nargs="*", default=(1, 2), help="packs a team of the games observed")
    parser.add_argument("--modes", nargs="*", choices=("full", "partial"), default=("full", "partial"))
    args = parser.parse_args()
    set_up_jax(1)
    report: dict[str, Any] = {}
    if args.what in ("switches", "all"):
        report["switches"] = switches(args.arenas, args.games)
    if args.what in ("observation", "all"):
        for packs in args.packs:
            for mode in args.modes:
                name = f"observation, {5 * packs}v{5 * packs}, {mode}"
                report[name] = observation(args.arenas // packs, args.repeats, packs, mode)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
