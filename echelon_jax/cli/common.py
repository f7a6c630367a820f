"""What the commands share: the flags of the game, and the set-up of JAX before anything is computed."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any

import tyro

from echelon_jax import jax_setup
from echelon_jax.cli.errors import UsageError, checked
from echelon_jax.cli.fields import given, override_flags
from echelon_jax.config import INTERFACE_FIELDS, RULE_SETS, RULES, EnvConfig
from echelon_jax.gpu.flags import gpu_expected, set_gpu_flags
from echelon_jax.native.choice import ENVIRONMENT_VARIABLE, KERNELS, chosen_kernels

AUTO = "auto"  # a value of flags that stand for what suits the machine
OLD_RULE_SETS = {"mended": "revised"}  # names that earlier versions had
EnvFlags: Any = override_flags(EnvConfig, "EnvFlags", ("num_packs", "observation_mode", *INTERFACE_FIELDS))


@dataclasses.dataclass(frozen=True)
class GameFlags:
    """The game to play."""

    rules: str | None = None
    """Rule set: `revised` (the default, docs/differences.md), or `original` to the letter."""
    size: int | None = None
    """Edge of the square map in voxels, at least 20; 28 under revised rules. `--size-x` and `--size-y` set one edge."""
    packs: int | None = None
    """Packs of five mechs per team: 1 (the default) is 5 against 5, 2 is 10 against 10."""
    mode: str | None = None
    """Observation mode: `full` (the default) or `partial`."""
    observation: str | None = None
    """Observation vector: `original` or `modern`; by default modern with revised rules and original with original rules."""
    actions: str | None = None
    """Action vector: `original` or `modern`, with the same defaults."""
    reward: str | None = None
    """Reward: `original` or `modern`, with the same defaults (docs/rewards.md)."""
    more: tyro.conf.OmitArgPrefixes[EnvFlags] = dataclasses.field(default_factory=EnvFlags)

    def config(self, default_size: int, base: dict[str, Any] | None = None) -> EnvConfig:
        """The configuration that these flags ask for.

        Args:
            default_size: edge of the map if no flag gives one.
            base: fields of a saved configuration, which the flags override; None for those of the rule set.

        Raises:
            UsageError: naming the field and its allowed values.
        """
        rules = OLD_RULE_SETS.get(self.rules, self.rules) if self.rules is not None else None
        if rules is not None and rules not in RULE_SETS:
            raise UsageError(f"rules must be one of {', '.join(RULE_SETS)}, got {self.rules!r}")
        fields: dict[str, Any] = {"size_x": default_size, "size_y": default_size} if base is None else dict(base)
        if base is None or rules is not None:
            fields |= RULES[rules or "revised"]
        named = {"size_x": self.size, "size_y": self.size, "num_packs": self.packs, "observation_mode": self.mode}
        named |= {name: getattr(self, name) for name in INTERFACE_FIELDS}
        fields |= {name: value for name, value in named.items() if value is not None} | given(self.more)
        return checked(EnvConfig, **fields)


def settled_kernels(kernels: str | None = None) -> str:
    """What runs the simulation, `xla` or `native`, for what a command was told.

    Args:
        kernels: `auto` is native kernels on a CPU for which they can be built, which this does, else `xla`; without a name
            ECHELON_KERNELS, else `xla`.

    Raises:
        UsageError: for any other name.
    """
    if kernels not in (None, AUTO, *KERNELS):
        raise UsageError(f"kernels must be {AUTO}, {' or '.join(KERNELS)}, got {kernels!r}")
    if kernels != AUTO:
        return checked(chosen_kernels, kernels)
    if gpu_expected():
        return "xla"  # no GPU has run the native kernels yet
    from echelon_jax.native.build import CannotBuild, build

    try:
        build("cpu")
    except CannotBuild as error:
        reason = str(error).splitlines()[0].removesuffix(", got native")
        print(f"note: xla runs the simulation. Native kernels are faster, but {reason}", file=sys.stderr)
        return "xla"
    return "native"


def set_up_jax(threads: int = 0, cpu_devices: int = 1, kernels: str | None = None) -> None:
    """Set XLA's flags for a GPU, then JAX for this machine (`jax_setup.set_up_jax`); must run before the first computation.

    The flags are those of `echelon_jax.gpu.flags`, set only where JAX may find a GPU; XLA_FLAGS overrides each of them. Native
    kernels are built here, so that nothing is compiled where they cannot be.

    Args:
        kernels: what runs the simulation in this process, as `settled_kernels` takes it.

    Raises:
        UsageError: threads is below 0, there are no such kernels, or this machine cannot build them.
    """
    name = settled_kernels(kernels)
    set_gpu_flags()
    checked(jax_setup.set_up_jax, threads, cpu_devices)
    os.environ[ENVIRONMENT_VARIABLE] = name
    if name == "native":
        from echelon_jax.native.call import load_for_this_machine

        checked(load_for_this_machine)
