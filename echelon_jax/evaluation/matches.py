"""Evaluation as one call: a policy against named opponents, on paired maps that training never saw.

result = echelon_jax.evaluate("runs/cpu-40-seed0", ["scripted:0.5", "scripted", "random"], games=1000)
result.against["scripted"]["win_rate"], result.against["scripted"]["behaviour"]["own"]["heat"]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from echelon_jax.agents.registry import FORMS, is_agent_name, is_zoo_name, make_agent
from echelon_jax.config import EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.evaluation.behaviour_numbers import summarize_behaviour
from echelon_jax.evaluation.games import Games, play, summarize_games
from echelon_jax.evaluation.players import AgentPlayer, PolicyNumbers, PolicyPlayer
from echelon_jax.evaluation.recording import Recorder
from echelon_jax.fields import check_seed
from echelon_jax.runs.checkpoint import load_policy
from echelon_jax.runs.policy import Policy
from echelon_jax.training.reward_weights import reward_weights
from echelon_jax.worldgen.bank import WorldArrays, evaluation_seeds, generate_worlds

MOST_ARENAS = 1024  # side by side, unless told otherwise


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What a policy did against each opponent.

    Attributes:
        policy: the path of the policy.
        update: the updates after which it was saved.
        env_config: the game that was played.
        against: by opponent, the numbers of `summarize_games`, seconds per game, and "behaviour" (docs/evaluation.md).
        games: by opponent, every game as a row.
    """

    policy: str
    update: int
    env_config: EnvConfig
    against: dict[str, dict[str, Any]]
    games: dict[str, Games]

    def report(self) -> dict[str, Any]:
        """Return everything except the single games, ready for JSON."""
        return {"policy": self.policy, "update": self.update, "against": self.against}


def policy_player(policy: Policy, deterministic: bool = False) -> tuple[PolicyPlayer, PolicyNumbers]:
    """Return a loaded policy as (player, numbers)."""
    clip = policy.config.observation_clip or None
    player = PolicyPlayer(policy.network, clip, deterministic)
    return player, PolicyNumbers(policy.params, policy.observation_moments)


def opponent_player(
    opponent: str | Policy, env_config: EnvConfig, deterministic: bool = False, fire_probability: float = 1.0
) -> tuple[Any, Any]:
    """Return an opponent as (player, numbers); `fire_probability` is that of the scripted opponent if its name gives no rate.

    Raises:
        ValueError: an unknown name, or a policy that was trained for another game.
        CheckpointError: its checkpoint cannot be used.
    """
    if isinstance(opponent, str):
        if is_agent_name(opponent):
            agent, numbers = make_agent(opponent, env_config, fire_probability)
            return AgentPlayer(agent), numbers
        if not is_zoo_name(opponent) and not Path(opponent).exists():
            raise ValueError(
                f"opponents must be {FORMS}, the path of a run or checkpoint, or zoo:NAME, got {opponent!r}"
            )
        opponent = load_policy(opponent)
    theirs = dataclasses.replace(opponent.env_config, reward=env_config.reward)  # what was paid does not matter here
    if theirs != env_config:
        fields = [f.name for f in dataclasses.fields(theirs) if getattr(theirs, f.name) != getattr(env_config, f.name)]
        raise ValueError(f"opponents must be trained for the same game, one differs in {', '.join(fields)}")
    return policy_player(opponent, deterministic)


def evaluate(
    policy: Policy | str | Path,
    opponents: str | Policy | Sequence[str | Policy] = "scripted",
    *,
    games: int = 200,
    arenas: int | None = None,
    seed: int = 0,
    fire_probability: float = 1.0,
    deterministic: bool = False,
    record: Recorder | None = None,
    worlds: WorldArrays | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Evaluation:
    """Play a policy against each of several opponents, both sides of every map.

    Args:
        policy: a loaded policy, or the path of a run or checkpoint.
        opponents: one or several of a name that `agents.registry` knows, the path of a run or checkpoint, a loaded policy.
        games: games against each opponent; an even number, two per map.
        arenas: games side by side; an even number; by default all, up to MOST_ARENAS.
        seed: seed of the maps, which training never uses, and of every draw.
        fire_probability: fire rate of a "scripted" without one.
        deterministic: take the policy's most likely action instead of a sample; opponents always sample.
        record: receives frames and values of the games against the first opponent.
        worlds: games / 2 maps to use instead of those of `seed`.
        progress: called with (opponent, games finished, games in all).

    Raises:
        ValueError: a number out of range, an unknown opponent, or one trained for another game.
        CheckpointError: a checkpoint cannot be used.
    """
    for field, value in (("games", games), ("arenas", arenas)):
        if value is not None and (value < 2 or value % 2):
            raise ValueError(f"{field} must be an even number from 2, got {value}")
    seed = check_seed(seed)
    source = str(policy) if isinstance(policy, (str, Path)) else "a loaded policy"
    policy = load_policy(policy) if isinstance(policy, (str, Path)) else policy
    config = policy.env_config
    wanted = [opponents] if isinstance(opponents, (str, Policy)) else list(opponents)
    players = [opponent_player(o, config, False, fire_probability) for o in wanted]
    names = [o if isinstance(o, str) else f"policy {i}" for i, o in enumerate(wanted)]
    worlds = generate_worlds(config, evaluation_seeds(seed, games // 2)) if worlds is None else worlds
    against, played = {}, {}
    for number, (name, other) in enumerate(zip(names, players, strict=True)):

        def told(done: int, total: int, name: str = name) -> None:
            if progress is not None:
                progress(name, done, total)

        rows = play(
            Echelon(config),
            worlds,
            policy_player(policy, deterministic),
            other,
            jax.random.key(seed),
            min(games, MOST_ARENAS if arenas is None else arenas),
            told,
            record if number == 0 else None,
            reward_weights(policy.config, config),
        )
        summary: dict[str, Any] = summarize_games(rows)
        summary["length_seconds"] = summary["length_steps"] * config.decision_seconds
        summary["behaviour"] = summarize_behaviour(config, rows.behaviour, rows.length)
        against[name], played[name] = summary, rows
    return Evaluation(source, policy.update, config, against, played)
