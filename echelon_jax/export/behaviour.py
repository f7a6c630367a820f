"""Comparison of an exported policy with the JAX policy over whole games in the plain numpy environment (`reference`).

    python -m echelon_jax.export.behaviour RUN --games 200

plays the torch policy in the numpy environment and the JAX policy in the JAX environment, both against the scripted opponent,
and compares the win rates.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
import tyro

from echelon_jax.agents.registry import make_agent
from echelon_jax.config import EnvConfig
from echelon_jax.export import torch_policy
from echelon_jax.export.parity import TOLERANCE, differences, head_names, raw_heads
from echelon_jax.export.weights import clip_of
from echelon_jax.intervals import wilson
from echelon_jax.parity.agent_in_reference import AgentInReference
from echelon_jax.policies.features import read
from echelon_jax.policies.precision import products_in
from echelon_jax.reference.environment import ReferenceEnv
from echelon_jax.rules.mechs import TEAM_NAMES
from echelon_jax.runs.checkpoint import load_policy
from echelon_jax.runs.policy import Policy

Decide = Callable[[np.ndarray], np.ndarray]  # observation [team, obs] -> actions [team, actions]


# -- Step by step -------------------------------------------------------------------------------------------------------


class Followed(NamedTuple):
    """An episode that the JAX policy played on both sides while the torch policy watched.

    Attributes:
        steps: number of decisions.
        worst: largest difference per head, over all decisions of living mechs.
        outcome: how the episode ended.
    """

    steps: int
    worst: dict[str, float]
    outcome: dict[str, Any] | None


def follow(policy: Policy, module: torch_policy.Policy, seeds: Iterable[int]) -> list[Followed]:
    """Play one whole episode per seed in the reference environment, both programs carrying their own memory."""
    network, config, clip, names = policy.network, policy.env_config, clip_of(policy), head_names(policy)

    def decide(carry: Any, observation: Any, key: Any) -> Any:
        seen = read(network.features, policy.observation_moments, clip, observation)
        with products_in("float32"):
            reset = jnp.zeros(observation.shape[:2], bool)
            carry, distribution, value = network.apply(policy.params, carry, seen, reset)
        heads = (*raw_heads(distribution), value, carry.h, carry.c)
        return carry, distribution.action(distribution.sample(key)), heads

    compiled = jax.jit(decide)
    env, sides, played = ReferenceEnv(config), (2, config.team_size), []
    for seed in seeds:
        step, key = env.reset(seed), jax.random.key(seed)
        # Two teams are two arenas to the network, as in training: telemetry is shared by those who see it.
        carry, (h, c) = network.initial_carry(*sides), module.initial_state(*sides)
        worst, count = dict.fromkeys(names, 0.0), 0
        while not step.episode_over:
            observation = step.observation.reshape(*sides, -1)
            carry, actions, heads = compiled(carry, observation, jax.random.fold_in(key, count))
            with torch.no_grad():
                theirs = module(torch.from_numpy(observation), h, c, torch.zeros(sides, dtype=torch.bool))
            *_, h, c = theirs
            ours = {name: np.asarray(head, np.float32) for name, head in zip(names, heads, strict=True)}
            got = {name: head.detach().numpy().astype(np.float32) for name, head in zip(names, theirs, strict=True)}
            found = differences(ours, got, step.info["alive"].reshape(sides))
            worst = {name: max(worst[name], found[name]) for name in names}
            step = env.step(np.asarray(actions).reshape(config.num_mechs, -1))
            count += 1
        played.append(Followed(count, worst, step.info["outcome"]))
    return played


# -- Games against the scripted opponent ----------------------------------------------------------------------------------


class Record(NamedTuple):
    """Games of one player: won, drawn and lost."""

    wins: int
    draws: int
    losses: int

    @property
    def games(self) -> int:
        """Number of games."""
        return self.wins + self.draws + self.losses

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the win rate."""
        return wilson(self.wins, self.games)


def play_reference(
    config: EnvConfig,
    player: Callable[[int], Decide],
    seeds: Iterable[int],
    fire_probability: float = 1.0,
    progress: Callable[[Record], None] | None = None,
) -> Record:
    """Play two games per seed, one on each side, against the scripted opponent in the reference environment.

    Args:
        player: a function of the game's number that returns the decisions of a player with an empty memory.
    """
    env = ReferenceEnv(config)
    opponent = AgentInReference(make_agent("scripted", config, fire_probability, alone=True), config)
    wins = draws = losses = number = 0
    for seed in seeds:
        for side, name in enumerate(TEAM_NAMES):
            step = env.reset(int(seed))
            opponent.reset(env.arena, number)
            decide = player(number)
            rows = slice(side * config.team_size, (side + 1) * config.team_size)
            while not step.episode_over:
                actions = opponent.act(env.arena).copy()
                actions[rows] = decide(step.observation[rows])
                step = env.step(actions)
            winner = step.info["outcome"]["winner"]
            wins, draws = wins + (winner == name), draws + (winner == "draw")
            losses += winner not in (name, "draw")
            number += 1
            if progress is not None:
                progress(Record(wins, draws, losses))
    return Record(wins, draws, losses)


def torch_player(module: torch_policy.Policy, seed: int = 0) -> Callable[[int], Decide]:
    """Return the sampling torch policy as a player for `play_reference`."""

    def begin(number: int) -> Decide:
        generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
        memory: list[Any] = [None]

        def decide(observation: np.ndarray) -> np.ndarray:
            acted = module.act(torch.from_numpy(np.array(observation)), memory[0], generator=generator)
            memory[0] = acted.state
            return acted.action.numpy()

        return decide

    return begin


def agree(a: Record, b: Record) -> bool:
    """Whether two win rates differ by no more than the 95 % interval of their difference (Newcombe 1998, method 10)."""
    (low_a, high_a), (low_b, high_b) = a.interval, b.interval
    p, q = a.wins / a.games, b.wins / b.games
    down, up = math.hypot(p - low_a, high_b - q), math.hypot(high_a - p, q - low_b)
    return p - q - down <= 0.0 <= p - q + up


# -- As a script ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Behaviour:
    """Compare the win rate of a policy's torch export in the reference environment with its own in the JAX environment."""

    run_path: tyro.conf.Positional[Path]
    """A run directory or a checkpoint."""
    games: int = 200
    """Games in each environment; an even number."""
    follow: int = 20
    """Whole episodes followed decision by decision first."""
    seed: int = 0
    """Of the maps and of every draw."""
    fire_probability: float = 1.0
    """Of the scripted opponent; lower makes it easier."""
    size: int | None = None
    """Length and width of the maps; None for those that the policy was trained on."""

    def run(self) -> int:
        """Play and print; returns 0 if everything agrees, else 1."""
        from echelon_jax.evaluation.matches import evaluate
        from echelon_jax.export.torch_files import torch_module
        from echelon_jax.worldgen.bank import evaluation_seeds

        torch.set_num_threads(1)
        policy = load_policy(self.run_path)
        if self.size is not None:
            env_config = dataclasses.replace(policy.env_config, size_x=self.size, size_y=self.size)
            policy = dataclasses.replace(policy, env_config=env_config)
        module = torch_module(policy)
        followed = follow(policy, module, range(self.seed, self.seed + self.follow))
        worst = {name: max((f.worst[name] for f in followed), default=0.0) for name in head_names(policy)}
        steps = sum(f.steps for f in followed)
        print(f"{len(followed)} episodes, {steps} decisions:", ", ".join(f"{k} {v:.1e}" for k, v in worst.items()))
        seeds = evaluation_seeds(self.seed, self.games // 2)

        def progress(record: Record) -> None:
            if sys.stderr.isatty() or record.games % 20 == 0:
                print(f"\r{record}", end="", file=sys.stderr, flush=True)

        fire, player = self.fire_probability, torch_player(module, self.seed)
        theirs = play_reference(policy.env_config, player, seeds, fire, progress)
        arenas = min(self.games, 100)
        result = evaluate(policy, games=self.games, arenas=arenas, seed=self.seed, fire_probability=fire)
        summary = result.against["scripted"]
        ours = Record(*(int(summary[name]) for name in ("wins", "draws", "losses")))
        good = agree(theirs, ours) and max(worst.values()) <= TOLERANCE
        for name, record in (("torch in the reference environment", theirs), ("JAX in the JAX environment", ours)):
            low, high = record.interval
            print(f"{name}: {record.wins} of {record.games} won ({low:.0%} to {high:.0%})")
        print("agree" if good else "DO NOT agree")
        return 0 if good else 1


if __name__ == "__main__":
    sys.exit(tyro.cli(Behaviour).run())
