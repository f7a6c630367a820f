"""Flags that XLA needs for a GPU before JAX starts, as one table; the user's own XLA_FLAGS override them.

Nothing here imports JAX. The flags are set only where a GPU may be used, because they are part of the compilation cache's key.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, MutableMapping
from typing import NamedTuple

CUDA_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
GPU_PLATFORMS = ("cuda", "gpu", "rocm")


class Flag(NamedTuple):
    """An XLA flag: its name without dashes, its value, and why it is set."""

    name: str
    value: str
    why: str

    @property
    def text(self) -> str:
        """The flag as XLA reads it."""
        return f"--{self.name}={self.value}"


GPU_FLAGS = (
    Flag(
        "xla_gpu_enable_triton_gemm",
        "false",
        "XLA finds no tile sizes for the policy's matrix products as Triton kernels; cuBLAS takes them",
    ),
)
# While loops and conditionals inside CUDA graphs leave no synchronisation with the host. Off until it has run on a device: XLA had
# crashes on the second execution of such a graph (openxla/xla pull requests 35760 and 36135).
GRAPH_FLAGS = (
    Flag(
        "xla_gpu_enable_command_buffer",
        "+WHILE,+CONDITIONAL",
        "loops and conditionals become nodes of CUDA graphs",
    ),
)


def name_of(text: str) -> str:
    """Return the name of a flag as the user wrote it, `--name=value`, `--name` or `--noname`'s `noname`."""
    return text.lstrip("-").split("=", 1)[0]


def merged(users: str, flags: Iterable[Flag] = GPU_FLAGS) -> str:
    """Return the value of XLA_FLAGS: `flags` that the user did not name, then the user's own text, unchanged."""
    own = {name_of(word) for word in users.split()}
    ours = [flag.text for flag in flags if flag.name not in own]
    return " ".join([*ours, users.strip()]).strip()


def gpu_expected(environ: MutableMapping[str, str] = os.environ) -> bool:
    """Return whether JAX may find a GPU: a CUDA plugin is installed and JAX_PLATFORMS does not leave it out."""
    platforms = [word.strip() for word in environ.get("JAX_PLATFORMS", "").split(",") if word.strip()]
    if platforms and not set(platforms) & set(GPU_PLATFORMS):
        return False
    return any(importlib.util.find_spec(name) is not None for name in CUDA_PLUGINS)


def set_gpu_flags(environ: MutableMapping[str, str] = os.environ) -> bool:
    """Put the flags into XLA_FLAGS where JAX may find a GPU; must run before JAX is imported. Returns whether it did."""
    if not gpu_expected(environ):
        return False
    environ["XLA_FLAGS"] = merged(environ.get("XLA_FLAGS", ""))
    return True


def described(environ: MutableMapping[str, str] = os.environ) -> list[tuple[str, str]]:
    """Return, for a plan, each flag that a GPU run gets and whose it is: ours with the reason, or the user's own."""
    own = {name_of(word): word for word in environ.get("XLA_FLAGS", "").split()}
    rows = []
    for flag in GPU_FLAGS:
        users = own.get(flag.name)
        rows.append((flag.text, flag.why) if users in (None, flag.text) else (users, "from XLA_FLAGS"))
    return rows
