"""The games with which a run validates its policy: paired, on fixed maps that neither training nor evaluation plays."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.env.trace import Trace
from echelon_jax.evaluation.games import play, summarize_games
from echelon_jax.evaluation.matches import opponent_player
from echelon_jax.evaluation.players import PolicyNumbers, PolicyPlayer
from echelon_jax.evaluation.recording import Recorder
from echelon_jax.policies.network import Params
from echelon_jax.policies.normalize import Moments
from echelon_jax.policies.registry import make_network
from echelon_jax.runs.validation import Validation
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.reward_weights import reward_weights
from echelon_jax.worldgen.bank import WorldArrays, generate_worlds, validation_seeds

SHOWN = {"win_rate": "win_rate", "zone_share": "zone_share", "return": "return_own"}  # by metric, per opponent
_ONE_AT_A_TIME = threading.Lock()  # several seeds of one process would compile the same games side by side


class Validator:
    """Plays `config.validation_games` games against each of `config.validation_opponents`, both sides of every map.

    The games of an update follow from its policy, the run's seed and the update's number. No draw of training is used.

    Args:
        config, env_config: the configurations of the run.
        on_game: called with (update, opponent, trace) of the first game against the first opponent.

    Raises:
        ValueError: an unknown opponent, or one that was trained for another game.
        CheckpointError: the checkpoint of an opponent cannot be used.
    """

    def __init__(
        self,
        config: TrainConfig,
        env_config: EnvConfig,
        on_game: Callable[[int, str, Trace], None] | None = None,
    ) -> None:
        self.config, self.env_config, self.on_game = config, env_config, on_game
        names = config.validation_opponents.split(",")
        self.opponents = dict(zip(labels(names), [opponent_player(name, env_config) for name in names], strict=True))
        self.player = PolicyPlayer(make_network(config, env_config), config.observation_clip or None)
        self.metric_names = (
            "validation/score",
            "validation/win_rate",
            *(f"validation/{metric}/against_{name}" for name in self.opponents for metric in SHOWN),
        )
        self._worlds: WorldArrays | None = None

    def __call__(self, params: Params, moments: Moments, update: int) -> Validation:
        """Play the games of a policy that has done `update` updates."""
        with _ONE_AT_A_TIME:
            return self._play(params, moments, update)

    def _play(self, params: Params, moments: Moments, update: int) -> Validation:
        c = self.config
        if self._worlds is None:
            self._worlds = generate_worlds(self.env_config, validation_seeds(c.seed, c.validation_games // 2))
        key = jax.random.fold_in(jax.random.key(c.seed), update)
        metrics: dict[str, float] = {}
        scores, wins = [], []
        for number, (name, opponent) in enumerate(self.opponents.items()):
            record = Recorder(game=0) if self.on_game is not None and number == 0 else None
            games = play(
                Echelon(self.env_config, kernels=c.kernels),
                self._worlds,
                (self.player, PolicyNumbers(params, moments)),
                opponent,
                key,
                c.validation_games,
                record=record,
                rewards=reward_weights(c, self.env_config),
            )
            if record is not None and self.on_game is not None:
                self.on_game(update, name, record.trace())
            summary = summarize_games(games)
            scores.append(float(summary["score"]))
            wins.append(float(summary["win_rate"]))
            metrics |= {f"validation/{metric}/against_{name}": float(summary[read]) for metric, read in SHOWN.items()}
        score = float(np.mean(scores))
        return Validation(score, {"validation/score": score, "validation/win_rate": float(np.mean(wins)), **metrics})


def labels(opponents: list[str]) -> list[str]:
    """Return a short name for each opponent, all different: of a path, its last part.

    Raises:
        ValueError: an opponent stands there twice.
    """
    if len(set(opponents)) < len(opponents):
        raise ValueError(f"validation_opponents must be different from each other, got {','.join(opponents)}")
    short = [Path(name).name or name for name in opponents]
    return [name if short.count(name) == 1 else f"{name}-{number}" for number, name in enumerate(short, 1)]
