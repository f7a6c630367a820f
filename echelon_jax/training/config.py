"""The training configuration: frozen, checked in one place, with presets for a smoke test, a CPU and a GPU."""

from __future__ import annotations

import dataclasses
from typing import Any

from echelon_jax.agents.registry import FORMS, TRAINING_OPPONENTS, is_agent_name
from echelon_jax.fields import MAX_SEED, check, documented, field, make_plain
from echelon_jax.native.choice import KERNELS
from echelon_jax.policies.distributions import LOG_STD_RANGE
from echelon_jax.policies.memories import MEMORIES
from echelon_jax.policies.precision import PRECISIONS
from echelon_jax.policies.registry import check_network_name
from echelon_jax.sim.widths import loop_widths
from echelon_jax.training.curriculum import parse
from echelon_jax.training.guard import GuardConfig
from echelon_jax.training.league.draw import RULES, DrawConfig
from echelon_jax.training.ppo import PPOConfig

PRESETS = ("smoke", "cpu", "gpu")
MAX_WEIGHT = 1000.0
LEAGUE = "league"  # the opponent that is drawn for each episode
SELF = "self"  # the learner plays both sides and learns from both
WORST_RATIOS = 8  # entries that are kept of each update


def _reward(what: str) -> Any:
    text = f"Weight of {what} in the reward (docs/rewards.md); by default that of the game."
    return field(None, text, low=-MAX_WEIGHT, high=MAX_WEIGHT)


@documented
@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Everything about a run that is not about the game."""

    seed: int = field(0, "Seed of every draw of the run, the worlds included.", low=0, high=MAX_SEED)
    arenas: int = field(
        64,
        "Arenas that are simulated side by side; even, because the learner plays blue in half of them and red in the others.",
        low=2,
    )
    devices: int = field(
        1,
        "Devices that share the arenas evenly and learn together; `arenas` must be a multiple of twice this and of"
        " `minibatches` times this. 0 for as many as there are: the cores of a CPU, or the GPUs.",
        low=0,
    )
    rollout_steps: int = field(128, "Decision steps of a rollout, between two updates.", low=1)
    updates: int = field(100, "Updates of the whole run.", low=1)
    updates_per_call: int = field(
        1, "Updates in one call of the compiled program; divides `updates` and `bank_swap_every`.", low=1
    )
    epochs: int = field(4, "Passes over a rollout in one update.", low=1)
    minibatches: int = field(4, "Minibatches of a pass; divides `arenas`.", low=1)
    accumulate: int = field(
        0,
        "Parts in which a minibatch's gradient is computed, one after another, to save memory; the update is the same."
        " `arenas` must be a multiple of `minibatches` times this (times `devices`). 0 for as many as make a CPU fastest, and"
        " one elsewhere.",
        low=0,
    )
    remat: bool = field(
        False,
        "Compute the network's activations again in the backward pass instead of keeping them: less memory, more work.",
    )
    chunk: int = field(
        0,
        "Decision steps that gradients flow back through; divides `rollout_steps`, 0 for the whole rollout.",
        low=0,
    )
    burn_in: bool = field(
        False,
        "Recompute the LSTM state at the start of a chunk from the chunk before, instead of taking the rollout's.",
    )
    learning_rate: float = field(1e-3, "Adam learning rate.", low=0.0, high=1.0)
    anneal: bool = field(True, "Decrease the learning rate linearly over the run.")
    learning_rate_end: float = field(
        0.0, "Share of the learning rate left at the end of the run, with `anneal`.", low=0.0, high=1.0
    )
    entropy_end: float = field(
        1.0,
        "Share of the entropy coefficient left at the end of the run; it decreases linearly.",
        low=0.0,
        high=1.0,
    )
    gamma: float = field(0.99, "Discount factor of rewards, per decision step.", low=0.0, high=1.0)
    gae_lambda: float = field(0.95, "Lambda of generalised advantage estimation, per decision step.", low=0.0, high=1.0)
    after_death: float = field(
        0.0,
        "Weight of the team's reward in a mech's advantage after its own death (modern reward, `team_critic`).",
        low=0.0,
        high=1.0,
    )
    after_death_start: int = field(0, "Update from which `after_death` rises from 0.", low=0)
    after_death_ramp: int = field(30, "Updates over which `after_death` rises; 0 for a jump.", low=0)
    average_decay: float = field(
        0.0,
        "Decay per update of the moving average of the network's parameters, which then plays in validation games, checkpoints"
        " and exports while training goes on from the parameters themselves; 0 for no average.",
        low=0.0,
        high=0.9999,
    )
    clip: float = field(0.2, "PPO clip range of the probability ratio.", low=0.001, high=1.0)
    entropy_coefficient: float = field(0.003, "Weight of the entropy bonus in the loss.", low=0.0, high=1.0)
    value_coefficient: float = field(0.5, "Weight of the value loss in the loss.", low=0.0, high=10.0)
    value_clip: float = field(
        0.0,
        "Clip range of the change of the value since the rollout, in the critic's units; 0 for no clipping.",
        low=0.0,
        high=100.0,
    )
    target_kl: float = field(
        0.03,
        "Target KL divergence: the rest of an update is skipped once a minibatch exceeds 1.5 times this; 0 for never.",
        low=0.0,
        high=10.0,
    )
    max_grad_norm: float = field(0.5, "Global norm to which gradients are clipped.", low=1e-6, high=1e6)
    network: str = field("modern", "Network: a built-in name, `modern` or `original`, or an import path.")
    matmul_precision: str = field(
        "float32",
        "Precision of the learner's matrix products: `float32`, or faster and coarser on GPUs that have it. Evaluation and"
        " export always compute in float32.",
        choices=PRECISIONS,
    )
    kernels: str = field(
        "xla",
        "What runs the simulation: `xla`, or `native`, which is faster and needs a C++ compiler (docs/kernels.md).",
        choices=KERNELS,
    )
    hidden: int = field(128, "Width of the network's encoder.", low=1)
    lstm: int = field(128, "Width of the network's memory, an LSTM or what `memory` says.", low=1)
    memory: str = field(
        "mingru",
        "Memory of the modern network: `mingru`, whose gates do not read what is remembered, so that it trains faster, or"
        " `lstm`. The original network has an LSTM.",
        choices=tuple(MEMORIES),
    )
    forget_bias: float = field(1.0, "Initial bias of the gate that says what the memory keeps.", low=-10.0, high=10.0)
    initial_log_std: float = field(
        0.0,
        "Initial log standard deviation of continuous actions; the original's is 0, nearly uniform actions.",
        low=LOG_STD_RANGE[0],
        high=LOG_STD_RANGE[1],
    )
    layer_norm: bool = field(True, "LayerNorm before and after the memory (modern network).")
    team_critic: bool = field(True, "Let the critic see the memories of the whole team (modern network).")
    attention: bool = field(True, "Pool other mechs by attention rather than by their mean (modern network).")
    class_networks: bool = field(False, "Separate parameters for each mech class (modern network).")
    normalize_observations: bool = field(
        True, "Normalise continuous features of the observation by their running mean and standard deviation."
    )
    observation_clip: float = field(
        0.0,
        "Clip range of normalised features; 0 for none. A policy with a clip cannot be exported.",
        low=0.0,
        high=1000.0,
    )
    observation_ema_decay: float = field(
        1.0,
        "Decay per update of the statistics that normalise observations; 1 forgets nothing, 0.99 forgets over 100 updates.",
        low=0.0,
        high=1.0,
    )
    return_ema_decay: float = field(
        0.9, "Decay per update of the moving average that scales returns.", low=0.0, high=1.0
    )
    opponent: str = field(
        "scripted",
        "Opponent that the learner plays against (docs/opponents.md).",
        choices=(*TRAINING_OPPONENTS, LEAGUE, SELF),
        importable=True,
    )
    teacher: str = field(
        "",
        "Agent whose actions the learner imitates at first, in the states that it reaches itself; empty for none"
        " (docs/training.md).",
        choices=("", *TRAINING_OPPONENTS),
        importable=True,
    )
    teacher_weight: float = field(
        1.0, "Weight of the imitation loss at the first update; it falls linearly.", low=0.0, high=1000.0
    )
    teacher_updates: int = field(100, "Updates over which that weight falls to `teacher_end`.", low=1)
    teacher_end: float = field(
        0.0, "Weight of the imitation loss from then on; not above `teacher_weight`.", low=0.0, high=1000.0
    )
    league_slots: int = field(8, "Frozen policies that a league holds on the device.", low=1, high=256)
    league_every: int = field(
        10,
        "Updates between two submissions of the policy to the run's league; a multiple of `updates_per_call`.",
        low=1,
    )
    league_draw: str = field(
        "hard",
        "Weight of an opponent from the learner's score p against it: `hard` (1 - p)^2, `even` p (1 - p), `linear` 1 - p,"
        " `uniform` the same for all, `rating` by nearness of ratings.",
        choices=RULES,
    )
    league_current: float = field(
        0.3, "Share of a league's episodes that the current policy plays against itself.", low=0.0, high=1.0
    )
    league_uniform: float = field(
        0.1, "Share of the other episodes in which every opponent is as likely as any other.", low=0.0, high=1.0
    )
    league_agents: str = field(
        "scripted:easy scripted:medium scripted:hard",
        "Agents that play in a league besides policies: names as for `opponent`, between blanks; may be empty.",
    )
    league_start: str = field(
        "",
        "Policies in the slots of a league from the start, of the same game and network: runs, checkpoints or zoo:NAME,"
        " between blanks.",
    )
    league_decay: float = field(
        0.95, "Decay per update of the results that a league draws by; 1 forgets nothing.", low=0.0, high=1.0
    )
    league_keep_first: bool = field(
        True, "Keep the first submitted policy in its slot for the whole run, against forgetting."
    )
    fire_start: float = field(0.2, "Fire probability of the scripted opponent at the first update.", low=0.0, high=1.0)
    fire_end: float = field(
        1.0, "Fire probability of the scripted opponent from update `fire_ramp` on.", low=0.0, high=1.0
    )
    fire_ramp: int = field(
        0, "Updates over which the fire probability rises linearly; 0 means `fire_end` from the start.", low=0
    )
    curriculum: str = field(
        "",
        'Numbers of the game that change at given updates, such as "0 fire=0.2; 100 fire=1" (training/curriculum.py).',
    )
    bank_size: int = field(64, "Worlds on the device.", low=1)
    bank_swap_every: int = field(0, "Updates between two replacements of worlds on the device; 0 for none.", low=0)
    bank_swap_size: int = field(0, "Worlds replaced each time; divides `bank_size`.", low=0)
    validation_every: int = field(
        0,
        "Updates between two validations (docs/evaluation.md), which then choose the best checkpoint; 0 for none.",
        low=0,
    )
    validation_games: int = field(50, "Games of a validation against each opponent; even, two per map.", low=2)
    validation_opponents: str = field(
        "scripted",
        "Opponents of a validation, separated by commas (docs/opponents.md), or paths of runs or checkpoints.",
    )
    guard: bool = field(True, "Skip bad updates, and roll the learner back if they persist (docs/reliability.md).")
    guard_patience: int = field(3, "Consecutive bad updates before a rollback.", low=1)
    guard_retries: int = field(3, "Rollbacks before the run stops.", low=0)
    guard_recovery: int = field(50, "Consecutive good updates that make up for one rollback.", low=1)
    guard_rate_factor: float = field(
        0.5, "Factor on the learning rate for each rollback not made up for.", low=0.0, high=1.0
    )
    guard_ratio: float = field(
        100.0, "|probability ratio - 1| of one decision above which an update is bad.", low=0.1, high=1e9
    )
    guard_kl: float = field(
        1.0, "KL divergence of a minibatch, summed over heads, above which an update is bad.", low=1e-3, high=1e9
    )
    guard_entropy_drop: float = field(
        0.5,
        "Decrease of a head's entropy within one update above which it is bad; a uniform choice has 1.",
        low=1e-3,
        high=1e9,
    )
    guard_loss: float = field(
        10.0,
        "Loss above which an update is bad if it is also 6 standard deviations above and 3 times the run's usual loss.",
        low=0.0,
        high=1e9,
    )
    ratio_alarm: float = field(
        10.0,
        "Probability ratio (or its inverse) from which the worst entries of an update are written to RUN/ratios.jsonl; 0 never.",
        low=0.0,
        high=1e9,
    )
    reward_approach: float | None = _reward("approaching the zone")
    reward_zone: float | None = _reward("holding the zone")
    reward_damage: float | None = _reward("damage")
    reward_kill: float | None = _reward("a kill")
    reward_assist: float | None = _reward("an assist")
    reward_death: float | None = _reward("its own death")
    reward_win: float | None = _reward("a win")
    reward_loss: float | None = _reward("a loss")
    reward_draw: float | None = _reward("a draw")
    reward_shutdown: float | None = _reward("a shutdown of its own")

    def __post_init__(self) -> None:
        make_plain(self)

    @classmethod
    def smoke(cls, **overrides: Any) -> TrainConfig:
        """The smallest run that passes through everything; seconds after compiling."""
        small: dict[str, Any] = {"arenas": 8, "rollout_steps": 32, "updates": 4, "epochs": 2, "minibatches": 2}
        games: dict[str, Any] = {"validation_every": 2, "validation_games": 4}
        return cls(**{**small, **games, "hidden": 32, "lstm": 32, "bank_size": 4, **overrides})

    @classmethod
    def cpu(cls, **overrides: Any) -> TrainConfig:
        """Some six minutes on two cores with native kernels, on 40 x 40 maps, five mechs a side (docs/results/learning.md)."""
        sizes: dict[str, Any] = {"arenas": 64, "devices": 0, "rollout_steps": 128, "updates": 180}
        # So that a team does not learn 128 maps by heart: one that won 99 % of its training games on them won 96 % on others.
        worlds: dict[str, Any] = {"bank_size": 128, "bank_swap_every": 10, "bank_swap_size": 16}
        update: dict[str, Any] = {"hidden": 64, "lstm": 64, "epochs": 2, "minibatches": 8}
        decay: dict[str, Any] = {"learning_rate_end": 0.1, "entropy_coefficient": 0.0015, "entropy_end": 0.1}
        # A loss that costs all from the start teaches mechs to die early, because a death ends what they answer for. So it
        # costs little until they can fight. Then it costs all, and mechs answer for the result after their death as well. Teams
        # that win by fighting lose most of their other games by the zone's score, so the zone and the result count more at last.
        # So do shutdowns: without a price they are twice the scripted team's, with one from the start the zone is held less.
        result: dict[str, Any] = {
            "curriculum": "0 reward_loss=-3; 48 reward_loss=-5; 72 reward_loss=-10; "
            "100 reward_win=15 reward_loss=-15 reward_zone=0.3 reward_shutdown=-1",
            "after_death": 1.0,
            "after_death_start": 48,
            "after_death_ramp": 32,
        }
        # By exploring alone a team takes some hundred updates to win half of its games, with a teacher thirteen (one seed each).
        # The expert holds the zone for three quarters of its time. What is left of its weight at the end keeps a team there, for a
        # hundredth of the games; five times as much costs a twentieth (docs/results/learning.md).
        teacher: dict[str, Any] = {"teacher": "scripted:expert", "teacher_updates": 100, "teacher_end": 0.01}
        given = {**sizes, **worlds, **update, **decay, **result, **teacher, "validation_every": 50}
        return cls(**{**given, **overrides})

    @classmethod
    def gpu(cls, **overrides: Any) -> TrainConfig:
        """Thousands of arenas on one accelerator, in some 20 GB of its memory, an estimate (docs/gpu.md)."""
        wide: dict[str, Any] = {"arenas": 8192, "devices": 0, "rollout_steps": 64, "updates": 400}
        # An update is half a million steps, so worlds are played out soon: an eighth of them is new every ten updates.
        worlds: dict[str, Any] = {"bank_size": 512, "bank_swap_every": 10, "bank_swap_size": 64}
        games: dict[str, Any] = {"validation_every": 20, "validation_games": 512}
        # As the `cpu` preset had it before it had a teacher; no GPU has trained yet.
        result: dict[str, Any] = {
            "entropy_coefficient": 0.0015,
            "entropy_end": 0.1,
            "curriculum": "0 reward_loss=-3; 50 reward_loss=-5; 75 reward_loss=-10; "
            "150 reward_win=15 reward_loss=-15 reward_zone=0.3 reward_shutdown=-1",
            "after_death": 1.0,
            "after_death_start": 50,
            "after_death_ramp": 30,
        }
        return cls(**{**wide, **worlds, **games, **result, "minibatches": 8, **overrides})

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
        check(self)
        check_network_name(self.network)
        parse(self.curriculum)
        self._divides("arenas", 2, "2, since the learner plays each side in half of the arenas")
        self._divides("arenas", self.minibatches, f"minibatches ({self.minibatches})")
        if self.accumulate > 1:
            self._divides("arenas", self.shares, f"minibatches times accumulate ({self.shares})")
        if self.devices > 1:
            parts = "minibatches times accumulate" if self.accumulate > 1 else "minibatches"
            shares = {2: "twice devices", self.shares: f"{parts} times devices"}
            for number, named in shares.items():
                self._divides("arenas", number * self.devices, f"{named} ({number * self.devices})")
        if self.chunk:
            self._divides("rollout_steps", self.chunk, f"chunk ({self.chunk})")
        elif self.burn_in:
            raise ValueError(
                "burn_in must be false without chunk, got true: a whole rollout starts from a stored memory"
            )
        if self.teacher_end > self.teacher_weight:
            raise ValueError(
                f"teacher_end must be at most teacher_weight ({self.teacher_weight:g}), got {self.teacher_end:g}"
            )
        self._divides("updates", self.updates_per_call, f"updates_per_call ({self.updates_per_call})")
        self._divides("validation_games", 2, "2, since both sides of every map are played")
        if not all(self.validation_opponents.split(",")):
            raise ValueError(
                f"validation_opponents must be names separated by commas, got {self.validation_opponents!r}"
            )
        if self.opponent == LEAGUE:
            self._check_league()
        if self.bank_swap_every:
            self._divides("bank_swap_every", self.updates_per_call, f"updates_per_call ({self.updates_per_call})")
            if not 1 <= self.bank_swap_size <= self.bank_size:
                raise ValueError(
                    f"bank_swap_size must be from 1 to bank_size ({self.bank_size}), got {self.bank_swap_size}"
                )
            self._divides("bank_size", self.bank_swap_size, f"bank_swap_size ({self.bank_swap_size})")
        return self

    def _check_league(self) -> None:
        self._divides("league_every", self.updates_per_call, f"updates_per_call ({self.updates_per_call})")
        names = self.league_names
        for name in names:
            if not is_agent_name(name):
                raise ValueError(f"league_agents must be names of agents ({FORMS}), got {name!r}")
        if len(self.league_start.split()) > self.league_slots:
            raise ValueError(f"league_start must name at most league_slots ({self.league_slots}) policies")
        if len(set(names)) < len(names):
            raise ValueError(f"league_agents must be different from each other, got {self.league_agents!r}")

    def _divides(self, field: str, divisor: int, named: str) -> None:
        value = getattr(self, field)
        if value % divisor:
            raise ValueError(f"{field} must be a multiple of {named}, got {value}")

    @property
    def ppo(self) -> PPOConfig:
        """The part that the update reads."""
        fixed_rounds = loop_widths(self.arenas).fixed_rounds
        return PPOConfig(
            epochs=self.epochs,
            minibatches=self.minibatches,
            clip=self.clip,
            value_coefficient=self.value_coefficient,
            value_clip=self.value_clip,
            target_kl=self.target_kl,
            burn_in=self.burn_in,
            worst_ratios=WORST_RATIOS if self.ratio_alarm else 0,
            accumulate=1 if fixed_rounds and not self.accumulate else self.accumulate,
            remat=self.remat,
            skip=not fixed_rounds,  # a skip is a question to the host, as a loop without fixed rounds is
        )

    @property
    def shares(self) -> int:
        """Parts of a pass over a rollout whose gradients are computed one after another; each has as many arenas."""
        return self.minibatches * max(self.accumulate, 1)

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
    def league_names(self) -> tuple[str, ...]:
        """The agents of the league by name."""
        return tuple(self.league_agents.split())

    @property
    def league_draw_config(self) -> DrawConfig:
        """The part that the league's draw reads."""
        return DrawConfig(self.league_draw, self.league_current, self.league_uniform)

    @property
    def seats(self) -> int:
        """Teams that the learner plays in all arenas and learns from: one an arena, both with the opponent `self`."""
        return self.arenas * (2 if self.opponent == SELF else 1)

    @property
    def decisions_per_update(self) -> int:
        """Environment steps (decisions of a whole arena) of one rollout."""
        return self.arenas * self.rollout_steps

    @property
    def env_steps(self) -> int:
        """Environment steps of the whole run."""
        return self.updates * self.decisions_per_update

    def bank_swaps(self, update: int) -> int:
        """Return how many bank swaps lie before an update, counted from 0; the worlds are a function of seed and this."""
        return update // self.bank_swap_every if self.bank_swap_every else 0
