"""Games of each skill level against the one below: `python benchmarks/opponents.py`; the table is in docs/opponents.md.

Both sides of every map are played, on maps that training never sees. The loop plays agents against agents and leaves out the
observations, which none of them reads; everything else is the environment's own step. `--cost` times a level's decisions beside
the steps of the environment instead.
"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import tyro

from echelon_jax.config import EnvConfig
from echelon_jax.jax_setup import set_up_jax

LADDER = ("scripted:trivial", "scripted:easy", "scripted:medium", "scripted:hard", "scripted:expert")
PAIRS = (
    *zip(LADDER[1:], LADDER[:-1], strict=True),
    ("scripted:easy", "scripted:original"),
    ("scripted:medium", "scripted:original"),
    ("scripted:expert", "scripted:original"),
)


@dataclasses.dataclass(frozen=True)
class Opponents:
    """Play the ladder and print a table."""

    games: int = 400
    """Of each pair; a multiple of --arenas, or fewer; two per map."""
    arenas: int = 100
    """Games side by side."""
    seed: int = 1
    """Of maps and draws."""
    pairs: tuple[str, ...] = ()
    """Only these pairs, such as `scripted:hard,scripted:medium`."""
    size: int = 40
    """Edge of the square map in voxels."""
    rules: str = "revised"
    """Rule set: `revised` or `original`."""
    out: Path | None = None
    """File for the figures as JSON; written anew after every pair."""
    cost: bool = False
    """Time decisions and steps instead of playing."""

    def run(self) -> None:
        make = EnvConfig.revised if self.rules == "revised" else EnvConfig.original
        config = make(size_x=self.size, size_y=self.size)
        set_up_jax(1)
        if self.cost:
            print(json.dumps(cost(config, self.arenas), indent=1))
            return
        from echelon_jax.intervals import paired_score, wilson

        rows: list[dict[str, Any]] = []
        for a, b in [tuple(pair.split(",")) for pair in self.pairs] or PAIRS:
            start = time.perf_counter()
            result = play(config, a, b, self.games, self.arenas, self.seed)
            wins = int((result == 1).sum())
            score, low, high = paired_score(result)
            rows.append(
                {
                    "a": a,
                    "b": b,
                    "games": len(result),
                    "wins": wins,
                    "draws": int((result == 0).sum()),
                    "losses": int((result == -1).sum()),
                    "win_rate": wins / len(result),
                    "wilson": wilson(wins, len(result)),
                    "score": score,
                    "score_interval": (low, high),
                    "win_rate_as_blue": float((result[0::2] == 1).mean()),
                    "win_rate_as_red": float((result[1::2] == 1).mean()),
                    "seconds": time.perf_counter() - start,
                }
            )
            print(json.dumps(rows[-1]), flush=True)
            if self.out is not None:
                self.out.write_text(json.dumps(rows, indent=1))


def play(config: EnvConfig, a: str, b: str, games: int, arenas: int, seed: int) -> Any:
    """Results of paired games for a: 1 win, 0 draw, -1 loss; int [games], a is blue in even games and red in odd ones."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from echelon_jax.agents.registry import make_agent
    from echelon_jax.env.environment import Echelon
    from echelon_jax.training.sides import all_rows, learner_rows, opponent_rows
    from echelon_jax.worldgen.bank import evaluation_seeds, generate_worlds

    env = Echelon(config)
    arenas = min(arenas, games)
    agents = [make_agent(name, config, alone=True) for name in (a, b)]
    worlds = jnp.repeat(jnp.arange(arenas // 2, dtype=jnp.int32), 2)
    seeds = evaluation_seeds(seed, games // 2)
    results = []
    for start in range(0, games // 2, arenas // 2):
        chosen = seeds[start : start + arenas // 2]
        params = env.params(env.make_bank(generate_worlds(config, chosen)))
        key = jax.random.fold_in(jax.random.key(seed), start)
        state = _reset(env, jax.random.split(key, arenas), params, worlds)
        params = params.replace(bank=None)  # a step without a reset reads none
        memories = [made.agent.init(params, state) for made in agents]
        for number in range(config.max_steps):
            keys = jax.random.split(jax.random.fold_in(key, number), 3)
            actions = []
            for i, made in enumerate(agents):
                memories[i], chosen_actions = _act(
                    made.agent, params, made.params, memories[i], state, jax.random.split(keys[i], arenas)
                )
                actions.append(chosen_actions)
            joined = all_rows(learner_rows(actions[0]), opponent_rows(actions[1]))
            state = _step(env, jax.random.split(keys[2], arenas), state, joined, params)
            if number % 16 == 15 and bool(np.asarray(state.episode_over).all()):
                break
        over, winner, side = np.asarray(state.episode_over), np.asarray(state.winner), np.arange(arenas) % 2
        assert over.all(), "every game ends within the step limit"
        results.append(np.where(winner == 2, 0, np.where(winner == side, 1, -1)))
    return np.concatenate(results)


def _jitted() -> tuple[Any, Any, Any]:
    import jax

    reset = jax.jit(lambda env, keys, params, worlds: env.reset_batch(keys, params, worlds)[0], static_argnums=0)
    step = jax.jit(
        lambda env, keys, state, actions, params: env.step_batch(keys, state, actions, params)[0],
        static_argnums=0,
        donate_argnums=2,
    )
    act = jax.jit(
        lambda agent, params, numbers, memory, state, keys: agent.act(params, numbers, memory, state, keys),
        static_argnums=0,
        donate_argnums=3,
    )
    return reset, step, act


_reset, _step, _act = _jitted()


def cost(config: EnvConfig, arenas: int, repeats: int = 30) -> dict[str, float]:
    """Milliseconds of CPU time of a decision of the skill levels and of a step of the environment, in turns, in one process."""
    import jax
    import jax.numpy as jnp

    from echelon_jax.agents.registry import make_agent
    from echelon_jax.env.environment import Echelon
    from echelon_jax.worldgen.bank import evaluation_seeds, generate_worlds

    env = Echelon(config)
    params = env.params(env.make_bank(generate_worlds(config, evaluation_seeds(0, arenas // 2))))
    worlds = jnp.repeat(jnp.arange(arenas // 2, dtype=jnp.int32), 2)
    state = _reset(env, jax.random.split(jax.random.key(0), arenas), params, worlds)
    agents = {name: make_agent(name, config, alone=True) for name in ("scripted:original", "scripted:expert")}
    memory = {name: made.agent.init(params, state) for name, made in agents.items()}
    step = jax.jit(env.step_batch)  # observations included, as in training
    spent = dict.fromkeys([*agents, "step"], 0.0)
    for number in range(repeats + 1):  # the first one compiles
        key, again = jax.random.split(jax.random.fold_in(jax.random.key(1), number))
        keys = jax.random.split(key, arenas)
        for name, made in agents.items():
            start = time.process_time()
            memory[name], actions = jax.block_until_ready(
                _act(made.agent, params, made.params, memory[name], state, keys)
            )
            spent[name] += (time.process_time() - start) * (number > 0)
        start = time.process_time()
        state, _ = jax.block_until_ready(step(jax.random.split(again, arenas), state, actions, params))
        spent["step"] += (time.process_time() - start) * (number > 0)
    out = {f"{name}, ms": 1000 * seconds / repeats for name, seconds in spent.items()}
    return out | {f"{name}, share of a step": spent[name] / spent["step"] for name in agents}


if __name__ == "__main__":
    tyro.cli(Opponents).run()
