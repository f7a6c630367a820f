"""The memory of a run on its device, from shapes alone, and how many arenas fit into it. Nothing is compiled.

A run holds its state, its worlds and the rollout. Besides it needs the temporaries of a gradient step or of a decision, whichever
are larger, because one follows the other. Sizes of arrays are exact. How much of the activations XLA keeps after it has fused
operations is only known to XLA, so they are counted as what JAX would keep, times a measured factor (`FACTORS`).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from echelon_jax.config import EnvConfig
from echelon_jax.env.autoreset import AutoReset
from echelon_jax.env.environment import Echelon
from echelon_jax.env.interfaces import observation_layout
from echelon_jax.env.shapes import abstract_bank, tree_bytes
from echelon_jax.env.state import EnvParams
from echelon_jax.policies.features import read
from echelon_jax.policies.network import Network
from echelon_jax.policies.normalize import empty_moments
from echelon_jax.policies.registry import make_network
from echelon_jax.sim.rules import sim_rules
from echelon_jax.sim.widths import loop_widths
from echelon_jax.system import available_bytes
from echelon_jax.training import loss
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.devices import arenas_unit
from echelon_jax.training.reward_weights import reward_weights
from echelon_jax.training.rollout import Rollout
from echelon_jax.training.trainer import make_train

CPU_SHARE = 0.5  # of the memory that is free: other programs run there too
CPU_ARENAS = 1024  # of all devices: on a CPU more arenas are no faster, and one update takes longer
GPU_SHARE = 0.85  # the estimate may be 15 % short


@dataclasses.dataclass(frozen=True)
class Factor:
    """A measured number of the estimate: what counted bytes are multiplied by.

    Attributes:
        cpu, gpu: on each backend, whose compilers fuse differently.
        source: how it was measured. All programs are compiled from shapes, with jaxlib 0.10.2.
    """

    cpu: float
    gpu: float
    source: str

    def of(self, config: TrainConfig) -> float:
        """Return the number for the backend that a program is traced for now (sim/widths.py)."""
        return self.gpu if loop_widths(config.arenas).fixed_rounds else self.cpu


# benchmarks/memory.py measures the first again.
FACTORS = {
    "activations": Factor(
        1.04,
        0.72,
        "of what JAX keeps for the backward pass (`kept_bytes`, 237 MiB): with an LSTM the update of 256 arenas, 64 steps, 8"
        " minibatches has 280 MiB of temporaries for a CPU and 205 MiB for an H100, 35 MiB of them the gathered minibatch",
    ),
    "forward": Factor(
        1.1,
        1.1,
        "of the same for one decision (34 MiB): the policy of 256 arenas has 37 MiB of temporaries for an H100",
    ),
    "environment": Factor(
        0.1,
        0.1,
        "of its state: the step of 4,096 arenas has 102 MiB of temporaries for an H100, with 1,007 MiB of state",
    ),
}


@dataclasses.dataclass(frozen=True)
class Needs:
    """Bytes of a run on one device.

    Attributes:
        parameters: number of the network's parameters.
        held: what the run holds all the time, by name.
        rollout: the decisions of a rollout, which wait for the update.
        minibatch: the sequences of one part of a minibatch, gathered.
        activations: what its gradient needs besides.
        decision: temporaries of one decision of all arenas.
    """

    parameters: int
    held: dict[str, int]
    rollout: int
    minibatch: int
    activations: int
    decision: int

    @property
    def update(self) -> int:
        """Temporaries of a gradient step."""
        return self.minibatch + self.activations

    @property
    def total(self) -> int:
        """The most at a time."""
        return sum(self.held.values()) + self.rollout + max(self.update, self.decision)

    @property
    def rows(self) -> dict[str, int]:
        """Everything that `total` adds up, by name."""
        larger = {"gradient step": self.update} if self.update >= self.decision else {"decision": self.decision}
        return {**self.held, "rollout": self.rollout, **larger}


def abstract_batch(config: TrainConfig, env_config: EnvConfig, network: Network) -> tuple[loss.Batch, Any, int]:
    """Return the shapes of what the update reads of a rollout and of the memory of all arenas, and the bytes of the rollout."""
    seats, team, clip = config.seats, env_config.team_size, config.observation_clip or None

    def act(raw: Any) -> Any:
        params, key = network.init(jax.random.key(0)), jax.random.key(0)
        observation = read(network.features, empty_moments(network.features.own_size), clip, raw)
        carry = network.initial_carry(seats, team)
        _, distribution, value = network.apply(params, carry, observation, jnp.zeros((seats, team), bool))
        raw_action = distribution.sample(key)
        return observation, raw_action, distribution.head_log_prob(raw_action), value, carry

    raw = jax.ShapeDtypeStruct((seats, team, observation_layout(env_config).size), jnp.float32)
    observation, raw_action, log_prob, value, carry = jax.eval_shape(act, raw)
    flag = jax.ShapeDtypeStruct((seats, team), jnp.bool_)
    rows: dict[str, Any] = {"observation": observation, "raw_action": raw_action, "log_prob": log_prob, "value": value}
    flags: dict[str, Any] = dict.fromkeys(("reset", "policy_mask", "value_mask"), flag)
    advice = raw_action if config.teacher else None
    one = loss.Batch(**rows, **flags, advantage=value, target=value, teacher_action=advice)
    # A rollout has these besides, and the update makes advantages and targets of it.
    more = tree_bytes(dict.fromkeys(("reward", "final_value"), value)) + 3 * tree_bytes(flag)
    assert {*rows, "reset"} < set(Rollout.__dataclass_fields__)
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((config.rollout_steps, *x.shape), x.dtype), one)
    return batch, carry, tree_bytes(batch) + config.rollout_steps * more


def kept_bytes(config: TrainConfig, network: Network, batch: loss.Batch, carry: Any) -> int:
    """Return the bytes of activations that JAX keeps between the forward and the backward pass of a minibatch's loss.

    Parameters do not count, because they are kept anyway. Observations do where JAX keeps them (with `remat`), because XLA then
    makes a copy of most of them.
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    params = jax.eval_shape(network.init, key)

    no_weights = loss.Weights(entropy=jnp.float32(0.0), teacher=jnp.float32(0.0))

    def backward(params: Any, carry: Any, batch: loss.Batch, key: Any) -> Any:
        def of(params: Any) -> Any:
            return loss.loss_and_metrics(params, network, config.ppo, no_weights, carry, batch, key)[0]

        return jax.vjp(of, params)[1]

    there = {(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(params)}
    kept = jax.tree.leaves(jax.eval_shape(backward, params, carry, batch, key))
    return tree_bytes([leaf for leaf in kept if (leaf.shape, leaf.dtype) not in there])


@dataclasses.dataclass(frozen=True)
class UpdateNeeds:
    """Bytes of the learner's part of a run.

    Attributes:
        rollout: the decisions of a rollout, which wait for the update.
        batch: what the update reads of them, with the memories that it starts from.
        minibatch: the sequences of one part of a minibatch, gathered.
        activations: what its gradient needs besides.
        forward: what one decision of the policy needs in all arenas.
    """

    rollout: int
    batch: int
    minibatch: int
    activations: int
    forward: int


def update_needs(config: TrainConfig, env_config: EnvConfig) -> UpdateNeeds:
    """Return what the rollout and the update of a run on one device need."""
    network = make_network(config, env_config)
    batch, carry, rollout = abstract_batch(config, env_config, network)
    length, some = config.rollout_steps // config.chunks, config.seats * config.chunks // config.minibatches
    some //= config.ppo.accumulate or loss.parts_for_a_cache(network, some, length * env_config.team_size)
    part = jax.tree.map(lambda x: jax.ShapeDtypeStruct((length, some, *x.shape[2:]), x.dtype), batch)
    memory = jax.tree.map(lambda x: jax.ShapeDtypeStruct((some, *x.shape[1:]), x.dtype), carry)
    kept = kept_bytes(dataclasses.replace(config, remat=False), network, part, memory)
    one = kept // (length * some)  # decision of a team
    if config.remat:  # the backward pass computes one decision of these arenas again at a time
        kept = kept_bytes(config, network, part, memory) + one * some
    return UpdateNeeds(
        rollout=rollout + (tree_bytes(batch) if config.chunks > 1 else 0),  # chunks are laid out anew
        batch=tree_bytes(batch) + config.chunks * tree_bytes(carry),
        minibatch=tree_bytes((part, memory)),
        activations=round(FACTORS["activations"].of(config) * kept),
        forward=round(FACTORS["forward"].of(config) * one * config.seats),
    )


def needs(config: TrainConfig, env_config: EnvConfig) -> Needs:
    """Return what a run needs on each of its devices.

    Args:
        config: of the run; `devices` 0 counts as 1.
        env_config: the game.
    """
    devices = config.devices or 1
    config = dataclasses.replace(config, arenas=config.arenas // devices, devices=1)
    trainer = make_train(AutoReset(Echelon(env_config, kernels=config.kernels)), config)
    bank = abstract_bank(env_config, config.bank_size)
    with jax.ensure_compile_time_eval():
        env_params = EnvParams(rules=sim_rules(env_config), rewards=reward_weights(config, env_config), bank=bank)
    state = trainer.shapes(env_params)
    runner, learner = state.runner_state, (state.params, state.optimizer)
    arenas, observation = tree_bytes(runner.env_state), tree_bytes(runner.observation)
    update = update_needs(config, env_config)
    # The observation of the next decision, and the last one of an episode.
    decision = update.forward + 2 * observation + round(FACTORS["environment"].of(config) * arenas)
    return Needs(
        parameters=sum(leaf.size for leaf in jax.tree.leaves(state.params)),
        held={
            "network": tree_bytes(state.params),
            "optimiser": tree_bytes(state.optimizer),
            "guard, league, average": tree_bytes(state) - tree_bytes((runner, learner)),
            "arenas": arenas,
            "observations and memories": tree_bytes(runner) - arenas,
            "worlds": tree_bytes(bank),
        },
        rollout=update.rollout,
        minibatch=update.minibatch,
        activations=update.activations,
        decision=decision,
    )


def fitting_arenas(config: TrainConfig, env_config: EnvConfig, devices: int, free: int, most: int | None = None) -> int:
    """Return the largest number of arenas whose run fits, of all devices together.

    Args:
        config: of the run; its `arenas` do not count.
        env_config: the game.
        devices: that share the arenas.
        free: bytes on each device that the run may use.
        most: arenas of one device at most.

    Raises:
        ValueError: not even the fewest fit.
    """
    unit = arenas_unit(config.shares, 1)

    def total(units: int) -> int:
        return needs(dataclasses.replace(config, arenas=units * unit, devices=1), env_config).total

    low, high = total(1), total(17)  # sizes are linear in the arenas
    each = max(1, (high - low) // 16)
    units = 1 + (free - low) // each
    if most is not None:
        units = min(units, max(1, most // unit))
    if low > free or units < 1:
        raise ValueError(
            f"arenas must be a number where the memory is short: {unit} arenas need {low / 2**20:,.0f} MiB on a device, and a"
            f" run may use {free / 2**20:,.0f} MiB"
        )
    return units * unit * devices


def usable_bytes(devices: list[Any]) -> tuple[int, int | None, str]:
    """Return the bytes of each device that a run may use, the most arenas of a device or None, and where both are from."""
    stats = [device.memory_stats() or {} for device in devices]
    if all("bytes_limit" in told for told in stats):
        free = min(told["bytes_limit"] - told.get("bytes_in_use", 0) for told in stats)
        words = f"{GPU_SHARE:.0%} of the {free / 2**30:,.1f} GiB that JAX may still take on each device"
        return int(GPU_SHARE * free), None, words
    free = available_bytes()
    words = f"{CPU_SHARE:.0%} of the {free / 2**30:,.1f} GiB of memory that are free; at most {CPU_ARENAS:,} on a CPU"
    return int(CPU_SHARE * free) // len(devices), CPU_ARENAS // len(devices), words


def fitted(config: TrainConfig, env_config: EnvConfig, devices: list[Any]) -> tuple[TrainConfig, str]:
    """Return the configuration with these devices and as many arenas as fit into their free memory, and what that is in words.

    Raises:
        ValueError: not even the fewest arenas fit.
    """
    free, most, words = usable_bytes(devices)
    arenas = fitting_arenas(config, env_config, len(devices), free, most)
    return dataclasses.replace(config, arenas=arenas, devices=len(devices)), words
