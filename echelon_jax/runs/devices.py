"""The number of devices of a run: told, that of the run to resume, or as many as the machine has and the arenas allow."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from echelon_jax.runs.directory import read_config
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.devices import allowed_devices


def processor_cores() -> int:
    """Return the number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def settled(config: TrainConfig, run_dir: Path, there: int) -> TrainConfig:
    """Return the configuration with a number of devices, where it leaves that open (`devices` 0).

    A run that is there already goes on with its own number, on any machine: its draws depend on it.

    Args:
        run_dir: directory of the run.
        there: devices that a new run may use.
    """
    if config.devices:
        return config
    described = read_config(run_dir)
    saved = None if described is None else described.get("train", {}).get("devices", 1)
    devices = saved or allowed_devices(there, config.arenas, config.shares)
    return dataclasses.replace(config, devices=devices)


def virtual_devices(config: TrainConfig, run_dir: Path) -> int:
    """Return how many devices the CPU must be divided into for a run, one a core where the configuration leaves it open."""
    return settled(config, run_dir, processor_cores()).devices
