"""`echelon export`: a policy as a file for other programs, with a printed parity check; `echelon import`: the way back."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from echelon_jax.agents.registry import is_zoo_name
from echelon_jax.cli.common import GameFlags, set_up_jax
from echelon_jax.cli.errors import UsageError, checked
from echelon_jax.cli.train import DEFAULT_SIZE, TrainFlags
from echelon_jax.fields import check_seed
from echelon_jax.training.config import PRESETS

if TYPE_CHECKING:
    from echelon_jax.runs.policy import Policy

FORMATS = {"torch": ".safetensors", "original": ".pt", "onnx": ".onnx"}
PACKAGES = "this command needs PyTorch and safetensors: pip install 'echelon-jax[torch]'"


@dataclasses.dataclass(frozen=True)
class ExportCommand:
    """Write a trained policy as a file for other programs, read it back and compare it with the JAX policy."""

    run_path: tyro.conf.Positional[Path]
    """A run directory (its last checkpoint is taken), a checkpoint, a .pt file, or zoo:NAME."""
    format: str = "torch"
    """`torch` (safetensors, a card and a one-file module), `original` (a .pt for the original's arena) or `onnx`."""
    out: Path | None = None
    """The file to write; by default export/policy with the format's ending, in the run directory, or in runs/zoo-NAME."""
    log_std: float | None = None
    """Only for `original`: log standard deviation of every action component; with -20 its arena plays the policy's mean."""
    check_steps: int = 60
    """Number of decisions of the parity check, in the reference environment."""
    seed: int = 0
    """Seed of the games of the parity check."""
    json: bool = False
    """Print JSON instead of text: what was written, and the largest difference of each head."""
    threads: int = 1
    """XLA's CPU threads; 0 leaves the choice to XLA."""

    def run(self) -> int:
        """Write and check; returns 0, or 1 if the file does not act as the policy does.

        Raises:
            UsageError: a flag out of range, a policy that cannot be read, or that the format cannot hold.
        """
        if self.format not in FORMATS:
            raise UsageError(f"format must be one of {', '.join(FORMATS)}, got {self.format!r}")
        if self.log_std is not None and self.format != "original":
            raise UsageError("log-std is for --format original; other formats can play the mean themselves")
        if self.check_steps < 1:
            raise UsageError(f"check-steps must be a whole number from 1, got {self.check_steps}")
        checked(check_seed, self.seed)
        if not is_zoo_name(str(self.run_path)) and not self.run_path.exists():
            raise UsageError(f"there is no run, checkpoint or file at {self.run_path}")
        set_up_jax(self.threads)
        _need_torch()
        from echelon_jax.export.weights import ExportError
        from echelon_jax.runs.checkpoint import CheckpointError

        try:
            policy = self._policy()
            out = self.out or self._default_path()
            wrote = self._write(policy, out)
            if not self.json:
                for path in wrote:
                    print(f"wrote {path}")
            return self._check(policy, out, wrote)
        except (ExportError, CheckpointError) as error:
            raise UsageError(str(error)) from error

    def _policy(self) -> Policy:
        from echelon_jax.runs.checkpoint import load_policy

        if self.run_path.suffix != ".pt":
            return load_policy(self.run_path)
        from echelon_jax.export.original import import_original

        policy, notes = import_original(self.run_path)
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
        return policy

    def _default_path(self) -> Path:
        path = self.run_path
        if is_zoo_name(str(path)):
            path = Path("runs") / str(path).replace(":", "-")
        elif path.is_file():
            path = path.parent
        elif path.absolute().parent.name == "checkpoints":
            path = path.absolute().parents[1]
        return path / "export" / f"policy{FORMATS[self.format]}"

    def _write(self, policy: Policy, out: Path) -> list[Path]:
        from echelon_jax.export.torch_files import torch_module, write_torch

        if self.format == "torch":
            return write_torch(policy, out)
        if self.format == "original":
            from echelon_jax.export.original import write_original

            return [write_original(policy, out, self.log_std)]
        from echelon_jax.export.onnx_files import write_onnx

        return [write_onnx(torch_module(policy), out)]

    def _check(self, policy: Policy, out: Path, wrote: list[Path]) -> int:
        from echelon_jax.export import parity
        from echelon_jax.export.torch_policy import load_policy

        play = parity.check_sequence(policy, self.check_steps, self.seed)
        expected = parity.jax_steps(policy, play.observation, play.done)
        if self.format == "onnx":
            from echelon_jax.export.onnx_files import onnx_network, outputs_of
            from echelon_jax.export.torch_files import torch_module

            names = [name.removesuffix("_next") for name in outputs_of(torch_module(policy))]
            got = parity.numpy_steps(onnx_network(out), policy, play.observation, play.done, names)
        else:
            got = parity.torch_steps(load_policy(out), play.observation, play.done)
        if self.log_std is not None:
            expected["log_std"][:] = self.log_std  # what was asked for
        # What the dead decide is nobody's: in the JAX arena they are given their team's planes, elsewhere they see zeros.
        rows = play.alive if policy.config.network == "modern" else None
        worst = parity.differences(parity.by_head(policy, expected), parity.by_head(policy, got), rows)
        good = max(worst.values()) <= parity.TOLERANCE
        if self.json:
            differences = {name: float(value) for name, value in worst.items()}
            print(
                json.dumps({"wrote": [str(path) for path in wrote], "differences": differences, "within": bool(good)})
            )
            return 0 if good else 1
        print(f"parity with the JAX policy, {play.done.size} mech decisions, largest difference per head:")
        for name, value in worst.items():
            print(f"  {name:16} {value:.1e}")
        print(f"{'within' if good else 'NOT within'} {parity.TOLERANCE:.0e}")
        return 0 if good else 1


@dataclasses.dataclass(frozen=True)
class ImportCommand:
    """Make a run from a .pt file that the original wrote or that was exported here; `train --resume` continues it."""

    file: tyro.conf.Positional[Path]
    """A checkpoint file in the original's format."""
    run_dir: Path
    """The run directory to make; `echelon train --resume --run-dir` continues it."""
    preset: str = "cpu"
    """Preset, as for `train`."""
    game: tyro.conf.OmitArgPrefixes[GameFlags] = dataclasses.field(default_factory=lambda: GameFlags(rules="original"))
    train: tyro.conf.OmitArgPrefixes[TrainFlags] = dataclasses.field(default_factory=TrainFlags)
    json: bool = False
    """Print JSON instead of text: the run, what was written, and how the file differs from the run."""
    threads: int = 0
    """XLA's CPU threads; 0 leaves the choice to XLA."""

    def run(self) -> int:
        """Read the file and write update 0 of a run; returns the exit status.

        Raises:
            UsageError: a flag out of range, a file that cannot be read, or weights that do not fit the configuration.
        """
        if self.preset not in PRESETS:
            raise UsageError(f"preset must be one of {', '.join(PRESETS)}, got {self.preset!r}")
        env_config = self.game.config(DEFAULT_SIZE[self.preset])
        from echelon_jax.training.reward_weights import preset_for

        given: dict[str, Any] = {k: v for k, v in dataclasses.asdict(self.train).items() if v is not None}
        given.setdefault("network", "original")  # the only one that such a file holds
        config = checked(preset_for(self.preset, env_config, **given).validate)
        set_up_jax(self.threads)
        _need_torch()
        from echelon_jax.export.original import import_original
        from echelon_jax.export.start_run import start_run
        from echelon_jax.export.weights import ExportError
        from echelon_jax.runs.checkpoint import CheckpointError

        try:
            policy, told = import_original(self.file)
            notes = list(told)
            for field in dataclasses.fields(env_config):
                theirs, ours = getattr(policy.env_config, field.name), getattr(env_config, field.name)
                if theirs != ours:
                    notes.append(f"{self.file} was made for {field.name} = {theirs!r}, this run has {ours!r}")
            path = start_run(policy, self.run_dir, config, env_config)
        except (ExportError, CheckpointError) as error:
            raise UsageError(str(error)) from error
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
        if self.json:
            print(
                json.dumps({"run_dir": str(self.run_dir), "update": 0, "wrote": [str(path)], "notes": notes}, indent=1)
            )
        else:
            print(f"wrote {path}")
        print(f"go on with: echelon train --resume --run-dir {shlex.quote(str(self.run_dir))}", file=sys.stderr)
        return 0


def _need_torch() -> None:
    try:
        import safetensors  # noqa: F401
        import torch
    except ImportError as error:
        raise UsageError(PACKAGES) from error
    torch.set_num_threads(1)  # layers of 128 gain nothing from more
