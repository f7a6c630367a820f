"""The training configuration: frozen, checked in one place, with a preset for every purse."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from echelon_jax.agents.registry import check_opponent_name
from echelon_jax.policies.distributions import LOG_STD_RANGE
from echelon_jax.policies.registry import check_network_name
from echelon_jax.training.curriculum import REWARD_WEIGHTS, parse
from echelon_jax.training.guard import GuardConfig
from echelon_jax.training.ppo import PPOConfig

PRESETS = ("smoke", "cpu", "gpu")
MAX_WEIGHT = 1000.0


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Everything about a run that is not about the game.

    Attributes:
        seed: of every draw of the run, the worlds included.
        arenas: arenas side by side; even, because the learner is blue in half of them and red in the others.
        rollout_steps: decisions between two updates.
        updates: updates of the whole run.
        updates_per_call: updates in one call of the compiled program; divides `updates` and `bank_swap_every`.
        epochs: passes over a rollout in one update.
        minibatches: parts of a pass; divides `arenas`.
        chunk: decisions that gradients go back through; divides `rollout_steps`, 0 for the whole rollout.
        burn_in: work out the memory at the start of a chunk anew from the chunk before, instead of taking the rollout's.
        learning_rate: of Adam.
        anneal: let the learning rate fall linearly over the run.
        learning_rate_end: share of the learning rate left at the end of the run, with `anneal`.
        entropy_end: share of the entropy coefficient left at the end of the run; the fall is linear.
        gamma: discount of rewards, per decision.
        gae_lambda: decay of the advantages' trace, per decision.
        after_death: share of the team's result that a mech still answers for after its own death (modern reward, team_critic).
        after_death_start: updates before that share begins to rise from 0.
        after_death_ramp: updates over which it rises; 0 for a jump.
        clip: of the probability ratio.
        entropy_coefficient: weight of the entropy in the loss.
        value_coefficient: weight of the value loss in the loss.
        value_clip: how far the value may move from the rollout's before its loss is clipped, critic's units; 0 for no clip.
        target_kl: once a minibatch's KL exceeds 1.5 times this, the rest of the update is left out; 0 for never.
        max_grad_norm: global norm to which gradients are clipped.
        network: one of NETWORKS.
        hidden: width of its encoder.
        lstm: width of its memory.
        forget_bias: bias of the forget gate at the start.
        initial_log_std: log of the spread of continuous actions at the start (the original's is 0: nearly uniform actions).
        layer_norm: LayerNorm before and after the memory (modern network).
        team_critic: let the critic see the memories of the whole team (modern network).
        attention: pool other mechs by attention rather than by their mean (modern network).
        class_networks: parameters of its own for each mech class (modern network).
        normalize_observations: subtract running means and divide by deviations, continuous features only.
        observation_clip: clip of normalised features, 0 for none (with a clip the network cannot be exported).
        return_ema_decay: share of the weight of earlier returns that the scale of returns keeps per update.
        opponent: a name that `agents.registry` knows; its fire rate is that of the next three fields.
        fire_start: the scripted opponent's fire probability at the first update.
        fire_end: its fire probability from update `fire_ramp` on.
        fire_ramp: updates of the linear rise; 0 means `fire_end` from the start.
        curriculum: numbers of the game that change at given updates, such as "0 fire=0.2; 100 fire=1" (training/curriculum.py).
        bank_size: worlds on the device.
        bank_swap_every: updates between two replacements of worlds in the bank; 0 for none.
        bank_swap_size: worlds replaced each time; divides `bank_size`.
        guard: drop updates that go wrong, and roll the run back if they keep going wrong (docs/reliability.md).
        guard_patience: bad updates in a row before the run is rolled back.
        guard_retries: rollbacks before the run stops.
        guard_recovery: good updates in a row that make up for one rollback.
        guard_rate_factor: of the learning rate, for each rollback not made up for.
        guard_ratio: |probability ratio - 1| of one decision beyond which an update is bad.
        guard_kl: KL of a minibatch, summed over heads, beyond which it is bad.
        guard_entropy_drop: fall of a head's entropy within one update beyond which it is bad; an even choice has 1.
        guard_loss: loss beyond which an update is bad if that is also 6 deviations above and 3 times the run's usual loss.
        reward_approach, reward_zone, reward_damage, reward_kill, reward_assist, reward_death, reward_win, reward_loss,
            reward_draw: a weight of the reward (docs/rewards.md) in place of its default, which depends on the game.
    """

    seed: int = 0
    arenas: int = 64
    rollout_steps: int = 128
    updates: int = 100
    updates_per_call: int = 1
    epochs: int = 4
    minibatches: int = 4
    chunk: int = 0
    burn_in: bool = False
    learning_rate: float = 1e-3
    anneal: bool = True
    learning_rate_end: float = 0.0
    entropy_end: float = 1.0
    gamma: float = 0.99
    gae_lambda: float = 0.95
    after_death: float = 0.0
    after_death_start: int = 0
    after_death_ramp: int = 30
    clip: float = 0.2
    entropy_coefficient: float = 0.003
    value_coefficient: float = 0.5
    value_clip: float = 0.0
    target_kl: float = 0.03
    max_grad_norm: float = 0.5
    network: str = "modern"
    hidden: int = 128
    lstm: int = 128
    forget_bias: float = 1.0
    initial_log_std: float = 0.0
    layer_norm: bool = True
    team_critic: bool = True
    attention: bool = True
    class_networks: bool = False
    normalize_observations: bool = True
    observation_clip: float = 0.0
    return_ema_decay: float = 0.9
    opponent: str = "scripted"
    fire_start: float = 0.2
    fire_end: float = 1.0
    fire_ramp: int = 0
    curriculum: str = ""
    bank_size: int = 64
    bank_swap_every: int = 0
    bank_swap_size: int = 0
    guard: bool = True
    guard_patience: int = 3
    guard_retries: int = 3
    guard_recovery: int = 50
    guard_rate_factor: float = 0.5
    guard_ratio: float = 100.0
    guard_kl: float = 1.0
    guard_entropy_drop: float = 0.5
    guard_loss: float = 10.0
    reward_approach: float | None = None
    reward_zone: float | None = None
    reward_damage: float | None = None
    reward_kill: float | None = None
    reward_assist: float | None = None
    reward_death: float | None = None
    reward_win: float | None = None
    reward_loss: float | None = None
    reward_draw: float | None = None

    @classmethod
    def smoke(cls, **overrides: Any) -> TrainConfig:
        """The smallest run that passes through everything; seconds after compiling."""
        small: dict[str, Any] = {"arenas": 8, "rollout_steps": 32, "updates": 4, "epochs": 2, "minibatches": 2}
        return cls(**{**small, "hidden": 32, "lstm": 32, "bank_size": 4, **overrides})

    @classmethod
    def cpu(cls, **overrides: Any) -> TrainConfig:
        """A run of six to eight minutes on two cores, on 40 x 40 maps with five mechs a side."""
        # At these widths about 650 us of one core per decision of an arena: 5 to 7 s per update.
        cheap: dict[str, Any] = {"arenas": 64, "rollout_steps": 128, "updates": 60, "bank_size": 32}
        small: dict[str, Any] = {"hidden": 64, "lstm": 64, "learning_rate_end": 0.2}
        return cls(**{**cheap, **small, **overrides})

    @classmethod
    def gpu(cls, **overrides: Any) -> TrainConfig:
        """Thousands of arenas on one accelerator."""
        wide: dict[str, Any] = {"arenas": 2048, "rollout_steps": 64, "updates": 1000, "updates_per_call": 5}
        return cls(**{**wide, "minibatches": 8, "bank_size": 512, **overrides})

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> TrainConfig:
        """Return a preset by name.

        Raises:
            ValueError: for another name.
        """
        if name not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {name!r}")
        return getattr(cls, name)(**overrides)

    def validate(self) -> TrainConfig:
        """Return itself if every field is allowed.

        Raises:
            ValueError: one sentence that names the field and what it may be.
        """
        for field, least in _WHOLE.items():
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{field} must be a whole number from {least}, got {value!r}")
        for field, (low, high) in _NUMBERS.items():
            value = getattr(self, field)
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            if not number or not low <= value <= high:
                raise ValueError(f"{field} must be a number from {low:g} to {high:g}, got {value!r}")
        for field in _SWITCHES:
            if not isinstance(getattr(self, field), bool):
                raise ValueError(f"{field} must be true or false, got {getattr(self, field)!r}")
        check_network_name(self.network)
        check_opponent_name(self.opponent)
        for field in (f"reward_{name}" for name in REWARD_WEIGHTS):
            value = getattr(self, field)
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= MAX_WEIGHT
            if value is not None and not number:
                raise ValueError(f"{field} must be a number from -{MAX_WEIGHT:g} to {MAX_WEIGHT:g}, got {value!r}")
        if not isinstance(self.curriculum, str):
            raise ValueError(f"curriculum must be a text, got {self.curriculum!r}")
        parse(self.curriculum)
        self._divides("arenas", 2, "2, since the learner plays each side in half of the arenas")
        self._divides("arenas", self.minibatches, f"minibatches ({self.minibatches})")
        if self.chunk:
            self._divides("rollout_steps", self.chunk, f"chunk ({self.chunk})")
        elif self.burn_in:
            raise ValueError(
                "burn_in must be false without chunk, got true: a whole rollout starts from a stored memory"
            )
        self._divides("updates", self.updates_per_call, f"updates_per_call ({self.updates_per_call})")
        if self.bank_swap_every:
            self._divides("bank_swap_every", self.updates_per_call, f"updates_per_call ({self.updates_per_call})")
            if not 1 <= self.bank_swap_size <= self.bank_size:
                raise ValueError(
                    f"bank_swap_size must be from 1 to bank_size ({self.bank_size}), got {self.bank_swap_size}"
                )
            self._divides("bank_size", self.bank_swap_size, f"bank_swap_size ({self.bank_swap_size})")
        return self

    def _divides(self, field: str, divisor: int, named: str) -> None:
        value = getattr(self, field)
        if value % divisor:
            raise ValueError(f"{field} must be a multiple of {named}, got {value}")

    @property
    def ppo(self) -> PPOConfig:
        """The part that the update reads."""
        return PPOConfig(
            epochs=self.epochs,
            minibatches=self.minibatches,
            clip=self.clip,
            value_coefficient=self.value_coefficient,
            value_clip=self.value_clip,
            target_kl=self.target_kl,
            burn_in=self.burn_in,
        )

    @property
    def chunks(self) -> int:
        """Chunks of a rollout that gradients stay within."""
        return self.rollout_steps // self.chunk if self.chunk else 1

    @property
    def guard_config(self) -> GuardConfig:
        """The part that the guard reads."""
        return GuardConfig(
            patience=self.guard_patience,
            retries=self.guard_retries,
            recovery=self.guard_recovery,
            rate_factor=self.guard_rate_factor,
            ratio=self.guard_ratio,
            kl=self.guard_kl,
            entropy_drop=self.guard_entropy_drop,
            loss=self.guard_loss,
        )

    @property
    def decisions_per_update(self) -> int:
        """Environment steps (decisions of a whole arena) of one rollout."""
        return self.arenas * self.rollout_steps

    def bank_swaps(self, update: int) -> int:
        """Return how many bank swaps lie before an update, counted from 0; the worlds are a function of seed and this."""
        return update // self.bank_swap_every if self.bank_swap_every else 0


_WHOLE = {
    "seed": 0,
    "arenas": 2,
    "rollout_steps": 1,
    "updates": 1,
    "updates_per_call": 1,
    "epochs": 1,
    "minibatches": 1,
    "chunk": 0,
    "hidden": 1,
    "lstm": 1,
    "fire_ramp": 0,
    "after_death_start": 0,
    "after_death_ramp": 0,
    "bank_size": 1,
    "bank_swap_every": 0,
    "bank_swap_size": 0,
    "guard_patience": 1,
    "guard_retries": 0,
    "guard_recovery": 1,
}
_NUMBERS = {
    "guard_rate_factor": (0.0, 1.0),
    "guard_ratio": (0.1, 1e9),
    "guard_kl": (1e-3, 1e9),
    "guard_entropy_drop": (1e-3, 1e9),
    "guard_loss": (0.0, 1e9),
    "learning_rate": (0.0, 1.0),
    "gamma": (0.0, 1.0),
    "gae_lambda": (0.0, 1.0),
    "after_death": (0.0, 1.0),
    "clip": (0.001, 1.0),
    "entropy_coefficient": (0.0, 1.0),
    "value_coefficient": (0.0, 10.0),
    "value_clip": (0.0, 100.0),
    "target_kl": (0.0, 10.0),
    "learning_rate_end": (0.0, 1.0),
    "entropy_end": (0.0, 1.0),
    "max_grad_norm": (1e-6, 1e6),
    "forget_bias": (-10.0, 10.0),
    "initial_log_std": LOG_STD_RANGE,
    "observation_clip": (0.0, 1000.0),
    "return_ema_decay": (0.0, 1.0),
    "fire_start": (0.0, 1.0),
    "fire_end": (0.0, 1.0),
}
_SWITCHES = (
    "burn_in",
    "anneal",
    "layer_norm",
    "team_critic",
    "attention",
    "class_networks",
    "normalize_observations",
    "guard",
)
