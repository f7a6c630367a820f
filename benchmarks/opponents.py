"""Games of each skill level against the one below: `python benchmarks/opponents.py`; the table is in docs/opponents.md.

Both sides of every map are played on maps that training never sees. `--cost` times a level's decisions beside the steps of the
environment instead.
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
    ("scripted:medium", "scripted:original"),
    ("scripted:expert", "scripted:original"),
)


@dataclasses.dataclass(frozen=True)
class Opponents:
    """Play the ladder and print a table."""

    games: int = 400
    """Of each pair; an even number, two per map."""
    arenas: int = 64
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
        from echelon_jax.arena.games import contest, maps

        worlds = maps(config, self.games, self.seed)
        rows: list[dict[str, Any]] = []
        for a, b in [tuple(pair.split(",")) for pair in self.pairs] or PAIRS:
            start = time.perf_counter()
            s = contest(config, worlds, a, b, (a, b), self.seed, self.arenas).summary
            rows.append({"a": a, "b": b, "seconds": time.perf_counter() - start, **s})
            print(
                f"{a} against {b}: {s['score']:.3f} ({s['score_low']:.3f} to {s['score_high']:.3f}), "
                f"{s['wins']}/{s['draws']}/{s['losses']}, blue {s['win_rate_as_blue']:.2f}, red {s['win_rate_as_red']:.2f}",
                flush=True,
            )
            if self.out is not None:
                self.out.write_text(json.dumps(rows, indent=1))


def cost(config: Any, arenas: int, repeats: int = 30) -> dict[str, float]:
    """Milliseconds of CPU time of a decision of the skill levels and of a step of the environment, in turns, in one process."""
    import jax
    import jax.numpy as jnp

    from echelon_jax.agents.registry import make_agent
    from echelon_jax.arena.games import maps
    from echelon_jax.env.environment import Echelon

    env = Echelon(config)
    params = env.params(env.make_bank(maps(config, arenas, 0)))
    worlds = jnp.repeat(jnp.arange(arenas // 2, dtype=jnp.int32), 2)
    state, _ = jax.jit(env.reset_batch)(jax.random.split(jax.random.key(0), arenas), params, worlds)
    agents = {name: make_agent(name, config, alone=True) for name in ("scripted:original", "scripted:expert")}
    acts = {name: jax.jit(made.agent.act) for name, made in agents.items()}
    memory = {name: made.agent.init(params, state) for name, made in agents.items()}
    step = jax.jit(env.step_batch)
    spent = dict.fromkeys([*agents, "step"], 0.0)
    for number in range(repeats + 1):  # the first one compiles
        key, again = jax.random.split(jax.random.fold_in(jax.random.key(1), number))
        for name, made in agents.items():
            start = time.process_time()
            memory[name], actions = jax.block_until_ready(
                acts[name](params, made.params, memory[name], state, jax.random.split(key, arenas))
            )
            spent[name] += (time.process_time() - start) * (number > 0)
        start = time.process_time()
        state, _ = jax.block_until_ready(step(jax.random.split(again, arenas), state, actions, params))
        spent["step"] += (time.process_time() - start) * (number > 0)
    out = {f"{name}, ms": 1000 * seconds / repeats for name, seconds in spent.items()}
    return out | {f"{name}, share of a step": spent[name] / spent["step"] for name in agents}


if __name__ == "__main__":
    tyro.cli(Opponents).run()
