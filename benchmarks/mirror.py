"""Mirror games: the scripted opponent against itself, to see whether a side has an advantage.

    python benchmarks/mirror.py --games 1600

It plays two games on every map and prints how often blue won, with two 95 % intervals. The Wilson interval treats all games as
independent. The interval over maps does not, because a map can favour a corner. The exit status is 1 if one half lies outside
the Wilson interval.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from typing import Any

from echelon_jax.fields import seed_argument
from echelon_jax.jax_setup import set_up_jax


def mirror(games: int, arenas: int, size: int, packs: int, mode: str, seed: int, rules: str) -> dict[str, Any]:
    """Play `games` mirror games, two per map, and return blue's numbers."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from echelon_jax.agents.base import AgentParams
    from echelon_jax.agents.scripted import Scripted
    from echelon_jax.config import EnvConfig
    from echelon_jax.env.environment import Echelon
    from echelon_jax.env.state import REASONS
    from echelon_jax.evaluation.games import play
    from echelon_jax.evaluation.players import AgentPlayer
    from echelon_jax.intervals import wilson
    from echelon_jax.worldgen.bank import evaluation_seeds, generate_worlds

    make = EnvConfig.revised if rules == "revised" else EnvConfig.original
    config = make(size_x=size, size_y=size, num_packs=packs, observation_mode=mode)
    began = time.perf_counter()
    worlds = generate_worlds(config, evaluation_seeds(seed, games // 2))
    scripted = AgentPlayer(Scripted(config)), AgentParams(fire_probability=jnp.float32(1.0))
    played = play(Echelon(config), worlds, scripted, scripted, jax.random.key(seed), arenas)
    # Player A is blue in the first game of a map and red in the second.
    blue = played.result * np.where(np.arange(len(played.result)) % 2, -1, 1)
    wins, draws = int((blue > 0).sum()), int((blue == 0).sum())
    points = (blue + 1) / 2  # a draw is half a win
    low, high = wilson(float(points.sum()), len(points))
    by_map = points.reshape(-1, 2).mean(1)
    half = 1.96 * float(by_map.std(ddof=1)) / math.sqrt(len(by_map))
    return {
        "rules": rules,
        "size": size,
        "packs": packs,
        "mode": mode,
        "games": len(blue),
        "blue_wins": wins,
        "draws": draws,
        "red_wins": len(blue) - wins - draws,
        "blue_rate": float(points.mean()),
        "interval": [low, high],
        "interval_over_maps": [float(points.mean()) - half, float(points.mean()) + half],
        "ended_by": {name: float((played.reason == i).mean()) for i, name in enumerate(REASONS) if i},
        "length_steps": float(played.length.mean()),
        "seconds": time.perf_counter() - began,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=400)
    parser.add_argument("--arenas", type=int, default=160)
    parser.add_argument("--size", type=int, default=40)
    parser.add_argument("--packs", type=int, default=1)
    parser.add_argument("--mode", choices=("full", "partial"), default="full")
    parser.add_argument("--seed", type=seed_argument, default=0)
    parser.add_argument("--rules", choices=("revised", "original"), default="revised")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.games < 2 or args.games % 2:
        parser.error(f"games must be an even number from 2, got {args.games}")
    set_up_jax(args.threads)
    report = mirror(args.games, args.arenas, args.size, args.packs, args.mode, args.seed, args.rules)
    print(json.dumps(report, indent=1))
    low, high = report["interval"]
    return 0 if low <= 0.5 <= high else 1


if __name__ == "__main__":
    sys.exit(main())
