"""A run that starts from a policy instead of random parameters: update 0 of a run directory, for `train --resume`."""

from __future__ import annotations

import dataclasses
import uuid
from pathlib import Path

import jax

from echelon_jax.config import EnvConfig
from echelon_jax.env.autoreset import AutoReset
from echelon_jax.env.environment import Echelon
from echelon_jax.env.interfaces import action_layout
from echelon_jax.export.weights import ExportError, described
from echelon_jax.policies.registry import make_network
from echelon_jax.runs import checkpoint, directory
from echelon_jax.runs.checkpoint import CheckpointError
from echelon_jax.runs.devices import processor_cores, settled
from echelon_jax.runs.directory import Claim
from echelon_jax.runs.lock import RunLock
from echelon_jax.runs.policy import Policy
from echelon_jax.runs.warm_start import warm
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.trainer import make_train
from echelon_jax.worldgen.bank import bank_contents, generate_worlds


def check_fits(policy: Policy, config: TrainConfig, env_config: EnvConfig) -> None:
    """Raise an ExportError if a run of this configuration cannot start from the policy, naming the field."""
    if config.network != policy.config.network:
        raise ExportError(
            f"the policy's network is {policy.config.network!r}, the run is configured for network = {config.network!r}"
        )
    theirs = described(policy)
    network = make_network(config, env_config)
    ours = {
        "observation": network.features.size,
        "action": action_layout(env_config).size,
        "hidden": config.hidden,
        "lstm": config.lstm,
    }
    for name, value in theirs.items():
        if ours[name] != value:
            raise ExportError(f"the policy has {name} = {value}, the run is configured for {name} = {ours[name]}")
    normalised = float(policy.observation_moments.count) > 0
    if config.normalize_observations and not normalised:
        raise ExportError(
            "the policy reads raw observations, so normalize_observations must be false (--normalize-observations False)"
        )
    if normalised and not config.normalize_observations:
        raise ExportError("the policy reads normalised observations, so normalize_observations must be true")
    if config.observation_clip != policy.config.observation_clip:
        raise ExportError(
            f"the policy was trained with observation_clip = {policy.config.observation_clip}, "
            f"the run is configured for {config.observation_clip}"
        )


def start_run(policy: Policy, run_dir: Path, config: TrainConfig, env_config: EnvConfig) -> Path:
    """Write update 0 of a run that starts from a policy; returns the checkpoint.

    Raises:
        ExportError: the policy does not fit the configuration.
        CheckpointError: the directory holds a run already, or cannot be written.
    """
    check_fits(policy, config, env_config)
    there = processor_cores() if jax.default_backend() == "cpu" else len(jax.devices())
    config = settled(config, run_dir, there)
    with RunLock(run_dir) as lock:
        claim = directory.look(run_dir, config, env_config, resume=False)
        if claim.described is not None:
            raise CheckpointError(f"{run_dir} already holds a run; give another --run-dir")
        try:
            return _write(policy, run_dir, claim, config, env_config)
        except BaseException:
            directory.undo(run_dir, lock.made)
            raise


def _write(policy: Policy, run_dir: Path, claim: Claim, config: TrainConfig, env_config: EnvConfig) -> Path:
    env = Echelon(env_config)
    # The first state is the same on any number of devices.
    trainer = make_train(AutoReset(env), dataclasses.replace(config, devices=1))
    slice_size = config.bank_swap_size if config.bank_swap_every else config.bank_size
    seeds = bank_contents(config.seed, config.bank_size // slice_size, slice_size, 0)
    env_params = env.params(env.make_bank(generate_worlds(env_config, seeds)))
    state = warm(trainer.init(jax.random.key(config.seed), env_params), policy)
    run = uuid.uuid4().hex[:12]
    snapshot = checkpoint.snapshot(state, config, env_config, extra=policy.extra, run=run)
    # The checkpoint first: a config.json without one would start a run from chance.
    written = checkpoint.write(run_dir, snapshot)
    directory.tell(run_dir, claim, config, env_config, {"run": run, "started_from": policy.extra})
    return written
