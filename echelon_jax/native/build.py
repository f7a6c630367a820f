"""Builds the native code with the machine's own compiler, once for each version of the sources, and keeps it in a cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import jax

from echelon_jax.jax_setup import cache_folder
from echelon_jax.native.header import header

SOURCES = Path(__file__).parent / "sources"
CACHE_VARIABLE = "ECHELON_NATIVE_CACHE"

# -ffp-contract=off: a multiply and an add are two roundings, as in the JAX code, so that both play the same game.
_CPU = ("-x", "c++", "-O3", "-std=c++17", "-fPIC", "-shared", "-pthread", "-ffp-contract=off", "-fno-math-errno")
_CUDA = (
    "-O3",
    "-std=c++17",
    "--extended-lambda",
    "-Xcompiler",
    "-fPIC",
    "-shared",
    "--cudart",
    "static",
    "--fmad=false",
)


class CannotBuild(ValueError):
    """The native code cannot be built on this machine; the message says what is missing."""


def cache_directory() -> Path:
    """Where built libraries are kept: ECHELON_NATIVE_CACHE, else a folder of the user's cache.

    Raises:
        CannotBuild: if the user has no such folder.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    base = cache_folder()
    if base is None:
        raise CannotBuild(f"{CACHE_VARIABLE} must name a directory where the user has no cache, for kernels native")
    return base / "echelon-jax" / "native"


def compiler(kind: str) -> str:
    """Path of the compiler for a kind of library, `cpu` or `cuda`.

    Raises:
        CannotBuild: if there is none.
    """
    names = [os.environ.get("CXX"), "g++", "clang++"] if kind == "cpu" else ["nvcc"]
    for name in names:
        found = shutil.which(name) if name else None
        if found:
            return found
    wanted = "a C++ compiler (g++ or clang++)" if kind == "cpu" else "the CUDA compiler (nvcc)"
    raise CannotBuild(f"kernels must be xla on a machine without {wanted}, got native")


def _flags(kind: str, architecture: str) -> tuple[str, ...]:
    return _CPU if kind == "cpu" else (*_CUDA, f"-arch={architecture}")


def build(kind: str, architecture: str = "sm_90") -> Path:
    """The library for `cpu` or `cuda`, built now unless the cache has it.

    Args:
        architecture: of the card, for `cuda`.

    Raises:
        CannotBuild: without a compiler, or if it fails.
    """
    if sys.platform == "win32":
        raise CannotBuild("kernels must be xla on Windows, got native")
    text, flags = header(), _flags(kind, architecture)
    digest = hashlib.sha256(repr((kind, flags, jax.__version__, text)).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    directory = cache_directory()
    library = directory / f"{kind}-{digest.hexdigest()[:16]}.so"
    if library.exists():
        return library
    tool = compiler(kind)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotBuild(f"{CACHE_VARIABLE} must name a directory that can be written, got {directory}") from error
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        Path(scratch, "generated.h").write_text(text, encoding="utf-8")
        made = Path(scratch, "made.so")
        source = SOURCES / ("cpu.cc" if kind == "cpu" else "cuda.cu")
        command = [
            tool,
            *flags,
            f"-I{scratch}",
            f"-I{SOURCES}",
            f"-I{jax.ffi.include_dir()}",
            str(source),
            "-o",
            str(made),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotBuild(
                f"kernels must be xla where {Path(tool).name} cannot build them: {done.stderr.strip()[-2000:]}"
            )
        os.replace(made, library)  # another process may have made the same file meanwhile
    return library
