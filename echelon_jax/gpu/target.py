"""The GPUs that programs can be compiled for without one, and the compiler that this needs.

The compiler is three wheels beside jaxlib: jax-cuda12-plugin and jax-cuda12-pjrt of jaxlib's own version, and nvidia-cuda-nvcc-cu12
(ptxas and libdevice). They may be installed like any package, or into a directory of their own that ECHELON_GPU_COMPILE names:
where they are importable every other JAX process tries to start a GPU first, and says that it found none.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from pathlib import Path

DATA = Path(__file__).parent / "data"
VARIABLE = "ECHELON_GPU_COMPILE"
WHEELS = ("jax-cuda12-plugin", "jax-cuda12-pjrt", "nvidia-cuda-nvcc-cu12")
OF_JAXLIB = WHEELS[:2]  # must have jaxlib's version


def targets() -> tuple[str, ...]:
    """Return the names of the GPUs whose facts are in the data directory."""
    return tuple(sorted(path.stem for path in DATA.glob("*.txtpb")))


def target_text(name: str) -> str:
    """Return what XLA needs to know of a GPU, a GpuTargetConfigProto in text form.

    Raises:
        ValueError: for a name that is not in `targets`.
    """
    if name not in targets():
        raise ValueError(f"compile-for must be one of {', '.join(targets())}, got {name!r}")
    lines = (DATA / f"{name}.txtpb").read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def architecture(name: str) -> str:
    """Return NVIDIA's name of a GPU's instruction set, such as `sm_90`.

    Raises:
        ValueError: for a name that is not in `targets`.
    """
    found = re.search(r"cuda_compute_capability \{ major: (\d+)(?: minor: (\d+))?", target_text(name))
    assert found is not None, name
    return f"sm_{found[1]}{found[2] or 0}"


def wheel_directory() -> str | None:
    """Return the directory of the compiler's own that ECHELON_GPU_COMPILE names, if any."""
    return os.environ.get(VARIABLE) or None


def wanted(jaxlib: str) -> list[str]:
    """Return the compiler's wheels for a version of jaxlib, as pip reads them."""
    return [f"{name}=={jaxlib}" if name in OF_JAXLIB else name for name in WHEELS]


def missing() -> str | None:
    """Return one sentence that says what the deviceless compile lacks and how to get it, or None if nothing."""
    own = wheel_directory()
    path = ([own] if own else []) + sys.path
    versions: dict[str, str] = {}
    for found in importlib.metadata.distributions(path=path):
        versions.setdefault(found.metadata["Name"].lower().replace("_", "-"), found.version)
    jaxlib = versions.get("jaxlib", "unknown")
    wrong = [name for name in WHEELS if name not in versions or (name in OF_JAXLIB and versions[name] != jaxlib)]
    if not wrong:
        return None
    return (
        f"compiling for a GPU needs {', '.join(wrong)} beside jaxlib {jaxlib}: pip install --no-deps --target DIR "
        f"{' '.join(wanted(jaxlib))}, then set {VARIABLE}=DIR (docs/gpu.md)"
    )


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(0 if missing() is None else 1)
    print(" ".join(wanted(importlib.metadata.version("jaxlib"))))
