"""Write a policy as ONNX for programs without torch, and run it with onnxruntime."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from echelon_jax.export.torch_files import write_whole
from echelon_jax.export.torch_policy import ModernPolicy, Policy
from echelon_jax.export.weights import ExportError

INPUTS = ("observation", "h", "c", "done")


def outputs_of(module: Policy) -> tuple[str, ...]:
    """Return the names of an ONNX file's outputs. Those of the modern network begin with the action of its likeliest choices."""
    first = ("action",) if isinstance(module, ModernPolicy) else ()
    return (*first, *module.head_outputs, "value", "h_next", "c_next")


class Deterministic(torch.nn.Module):
    """A modern policy that also returns the action of its likeliest allowed choices."""

    def __init__(self, policy: ModernPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(
        self, observation: torch.Tensor, h: torch.Tensor, c: torch.Tensor, done: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return the action, and what the policy returns."""
        *heads, value, h, c = self.policy(observation, h, c, done)
        action = self.policy.action_of(self.policy.choose(heads, True, None))
        return (action, *heads, value, h, c)


def traced(module: Policy) -> torch.export.ExportedProgram:
    """Return a policy as a torch.export program; inputs are `INPUTS`, outputs `outputs_of`.

    The original network takes any number of rows. The modern network takes [arenas, mechs, ...] with any number of arenas, and
    with up to all mechs of a team.
    """
    size, lstm = module.dimensions["observation"], module.dimensions["lstm"]
    rows: tuple[int, ...]
    if isinstance(module, ModernPolicy):
        mechs = torch.export.Dim("mechs", min=1, max=module.dimensions["mechs"])
        free, rows = {0: torch.export.Dim("arenas", min=1), 1: mechs}, (2, 2)
        program: torch.nn.Module = Deterministic(module).eval()
    else:
        free, rows, program = {0: torch.export.Dim("rows", min=1)}, (2,), module
    example = (
        torch.zeros(*rows, size),
        torch.zeros(*rows, lstm),
        torch.zeros(*rows, lstm),
        torch.zeros(rows, dtype=torch.bool),
    )
    return torch.export.export(program, example, dynamic_shapes=tuple(free for _ in INPUTS))


def write_onnx(module: Policy, path: str | Path) -> Path:
    """Write a float32 policy as one ONNX file with its card in the metadata; returns its path.

    Inputs and outputs are `INPUTS` and `outputs_of`, in the shapes of `traced`; `done` is bool. The original network's action
    is tanh(mean + exp(log_std) * noise), left to the caller with its choice of noise.

    Raises:
        ExportError: a name that does not end in .onnx, a package that is missing, or a place that cannot be written.
    """
    path = Path(path)
    if path.suffix != ".onnx":
        raise ExportError(f"the name of an ONNX export must end in .onnx, got {path.name!r}")
    try:
        import onnx
        import onnxscript  # noqa: F401  torch's exporter needs it
    except ImportError as error:
        raise ExportError(f"the onnx format needs the packages onnx and onnxscript: {error}") from error
    with warnings.catch_warnings():  # the exporter's own use of deprecated names
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program = torch.onnx.export(
            traced(module),
            input_names=INPUTS,
            output_names=outputs_of(module),
            dynamo=True,
            verbose=False,
            external_data=False,
        )
    assert program is not None
    model = program.model_proto
    card = model.metadata_props.add()
    card.key, card.value = "echelon policy", json.dumps(module.card)
    onnx.checker.check_model(model)
    data = io.BytesIO()
    onnx.save_model(model, data)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data.getvalue())
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def onnx_network(path: str | Path) -> Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], list[np.ndarray]]:
    """Return an ONNX file as a function (observation, h, c, done) -> its outputs in order; on the CPU, one thread.

    Raises:
        ExportError: the file is missing or damaged, or onnxruntime is not installed.
    """
    if not Path(path).is_file():
        raise ExportError(f"there is no ONNX file at {path}")
    try:
        import onnxruntime
        from onnxruntime.capi import onnxruntime_pybind11_state as failures
    except ImportError as error:
        raise ExportError(f"running an ONNX file needs the package onnxruntime: {error}") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except (failures.InvalidProtobuf, failures.InvalidGraph, failures.Fail, failures.InvalidArgument) as error:
        raise ExportError(f"{path} is damaged or no ONNX file: {str(error).splitlines()[0]}") from error

    def run(*inputs: Any) -> list[np.ndarray]:
        return session.run(None, dict(zip(INPUTS, inputs, strict=True)))

    return run
