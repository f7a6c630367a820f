"""`echelon evaluate`: a trained policy against scripted, random or another policy, on paired maps."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from echelon_jax.cli.common import games_table, set_up_jax
from echelon_jax.cli.errors import UsageError

if TYPE_CHECKING:
    from echelon_jax.config import EnvConfig
    from echelon_jax.learn.checkpoint import Policy

BUILT_IN = ("scripted", "random")


@dataclasses.dataclass(frozen=True)
class EvaluateCommand:
    """Play evaluation games and print a table. Both sides of every map are played; games end where the environment ends them."""

    policy: tyro.conf.Positional[Path]
    """A checkpoint, or a run directory (its last checkpoint is taken)."""
    opponents: tuple[str, ...] = ("scripted", "random")
    """Opponents: `scripted`, `random`, or paths of checkpoints."""
    games: int = 200
    """Games against each opponent; an even number, two per map."""
    arenas: int = 100
    """Games side by side; an even number."""
    seed: int = 0
    """Of the maps (never used in training) and of every draw."""
    fire_probability: float = 1.0
    """Of the scripted opponent; 1 is its full rate."""
    deterministic: bool = False
    """Act by the mean of the policy instead of a sample."""
    json: bool = False
    """Print JSON instead of a table."""
    threads: int = 0
    """XLA's CPU threads; 0 leaves the choice to XLA."""

    def run(self) -> int:
        """Play and print; returns the exit status.

        Raises:
            UsageError: a flag out of range, or a checkpoint that cannot be used.
        """
        for name in ("games", "arenas"):
            if getattr(self, name) < 2 or getattr(self, name) % 2:
                raise UsageError(f"{name} must be an even number from 2, got {getattr(self, name)}")
        if not 0 <= self.fire_probability <= 1:
            raise UsageError(f"fire-probability must be from 0 to 1, got {self.fire_probability}")
        if self.seed < 0:
            raise UsageError(f"seed must be a whole number from 0, got {self.seed}")
        if not self.policy.exists():
            raise UsageError(f"there is no checkpoint at {self.policy}")
        for name in self.opponents:
            if name not in BUILT_IN and not Path(name).exists():
                raise UsageError(f"opponents must be scripted, random or the path of a checkpoint, got {name!r}")
        set_up_jax(self.threads)
        from echelon_jax.learn.checkpoint import CheckpointError, load_policy

        try:
            policy = load_policy(self.policy)
            others = {name: None if name in BUILT_IN else load_policy(name) for name in self.opponents}
        except CheckpointError as error:
            raise UsageError(str(error)) from error
        for name, other in others.items():
            if other is not None and other.env_config != policy.env_config:
                raise UsageError(f"{name} was trained for another game than {self.policy}: {other.env_config}")

        results = {
            name: evaluate_policy(
                policy,
                name,
                other,
                games=self.games,
                arenas=self.arenas,
                seed=self.seed,
                fire_probability=self.fire_probability,
                deterministic=self.deterministic,
                show_progress=not self.json,
            )
            for name, other in others.items()
        }
        if self.json:
            print(json.dumps({"policy": str(self.policy), "update": policy.update, "against": results}, indent=1))
        else:
            from rich.console import Console

            Console().print(games_table(f"{self.policy} at update {policy.update}", results))
        return 0


def opponent_player(name: str, env_config: EnvConfig, other: Policy | None, fire_probability: float) -> tuple[Any, Any]:
    """A named opponent as (player, numbers)."""
    import jax.numpy as jnp

    from echelon_jax.agents.base import AgentParams
    from echelon_jax.learn.evaluation import AgentPlayer
    from echelon_jax.learn.trainer import make_opponent

    if other is not None:
        return policy_player(other, False)
    return AgentPlayer(make_opponent(name, env_config)), AgentParams(fire_probability=jnp.float32(fire_probability))


def policy_player(policy: Policy, deterministic: bool) -> tuple[Any, Any]:
    """A loaded policy as (player, numbers)."""
    from echelon_jax.learn.evaluation import PolicyNumbers, PolicyPlayer

    player = PolicyPlayer(
        policy.network, policy.network.features, policy.config.observation_clip or None, deterministic
    )
    return player, PolicyNumbers(policy.params, policy.observation_moments)


def evaluate_policy(
    policy: Policy,
    opponent: str,
    other: Policy | None = None,
    *,
    games: int = 200,
    arenas: int = 100,
    seed: int = 0,
    fire_probability: float = 1.0,
    deterministic: bool = False,
    show_progress: bool = False,
) -> dict[str, float | int]:
    """Play `games` paired games of a policy against a named opponent and return `summarize_games` of them."""
    import jax

    from echelon_jax.env.environment import Echelon
    from echelon_jax.learn.evaluation import play, summarize_games
    from echelon_jax.worldgen.bank import evaluation_seeds, generate_worlds

    config = policy.env_config
    worlds = generate_worlds(config, evaluation_seeds(seed, games // 2))

    def progress(done: int, total: int) -> None:
        if show_progress and sys.stderr.isatty():
            print(
                f"\r{opponent}: {done} of {total} games", end="" if done < total else "\n", file=sys.stderr, flush=True
            )

    played = play(
        Echelon(config),
        worlds,
        policy_player(policy, deterministic),
        opponent_player(opponent, config, other, fire_probability),
        jax.random.key(seed),
        min(arenas, games),
        progress,
    )
    summary = summarize_games(played)
    summary["length_seconds"] = summary["length_steps"] * config.decision_seconds
    return summary
