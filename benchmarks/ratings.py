"""Time of rating 1,000 players over 100,000 games: `python benchmarks/ratings.py`; figures in docs/arena.md."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import tyro

from echelon_jax.arena.glicko2 import Glicko2, new_players, rate, results


@dataclasses.dataclass(frozen=True)
class Ratings:
    """Draw games between players of known strength, rate them, and print seconds and how well the strengths came out."""

    players: int = 1000
    """How many players."""
    games: int = 100_000
    """How many games, in all periods together."""
    periods: int = 20
    """Rating periods."""
    seed: int = 0
    """Of strengths and games."""

    def run(self) -> None:
        rng = np.random.default_rng(self.seed)
        strength = rng.normal(1500, 250, self.players)
        a = rng.integers(0, self.players, self.games)
        b = (a + rng.integers(1, self.players, self.games)) % self.players
        score = (rng.random(self.games) < 1 / (1 + 10 ** ((strength[b] - strength[a]) / 400))).astype(np.float64)
        period = np.arange(self.games) * self.periods // self.games
        start = time.perf_counter()
        rated = rate(results(a, b, score), period, new_players(self.players, Glicko2()), Glicko2())
        seconds = time.perf_counter() - start
        correlation = np.corrcoef(rated.rating, strength)[0, 1]
        inside = (np.abs(rated.rating - strength) <= 1.96 * rated.deviation).mean()
        print(f"{self.players} players, {self.games} games, {self.periods} periods: {seconds:.2f} s")
        print(f"correlation with the true strengths {correlation:.3f}, truth within the 95 % interval {inside:.1%}")


if __name__ == "__main__":
    tyro.cli(Ratings).run()
