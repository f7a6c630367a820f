"""How wide and how long the loops of a step are: numbers that change its speed and never its result.

A CPU likes narrow loops that stop as soon as nothing is left to do. A GPU starts every kernel from the host, so it likes few
wide kernels, a fixed number of turns, and no loop that has to ask the host whether to go on.
"""

from __future__ import annotations

import dataclasses
import os

import jax

ENVIRONMENT_VARIABLE = "ECHELON_LOOP_WIDTHS"


@dataclasses.dataclass(frozen=True)
class LoopWidths:
    """Widths of the loops of a step. Any values of at least 1 (0 for `compaction_rounds`) give the same results.

    A width of at least the number of arenas (for `projectiles`: of slots) does everything in one pass without a queue.

    Attributes:
        rays: rays of a queue that are walked together; without effect under `fixed_rounds`, which walks all at once.
        observed_rays: the same for the rays of the original's observation, which are far more than a phase asks for.
        ray_steps: cells a ray advances in one turn of its loop.
        walk_steps: the same for the short rays of projectiles and splash.
        projectiles: projectiles of an arena that are evaluated in a round; 16 or more may change the last bit of a float, as
            `fixed_rounds` may.
        wrecks: arenas that get a wreck, or lose the voxels of an explosion, in a round.
        blasts: arenas whose explosion hurts mechs in a round.
        resets: arenas whose maps are copied in a round of resets.
        compaction_rounds: how often the rays of an observation that are still under way are packed together.
        move_unroll: mechs of the movement phase that are written out in one turn of its loop.
        fire_unroll: the same for the turns of the firing phase.
        fixed_rounds: loops with a known bound run that often, with masks, instead of asking after every turn whether to go on.
    """

    rays: int
    observed_rays: int
    ray_steps: int
    walk_steps: int
    projectiles: int
    wrecks: int
    blasts: int
    resets: int
    compaction_rounds: int
    move_unroll: int = 1
    fire_unroll: int = 1
    fixed_rounds: bool = False

    def __post_init__(self) -> None:
        """Refuse widths that no loop can have.

        Raises:
            ValueError: if a number is out of range.
        """
        for field in dataclasses.fields(self):
            value, least = getattr(self, field.name), 0 if field.name in ("compaction_rounds", "fixed_rounds") else 1
            if value < least:
                raise ValueError(f"{field.name} must be at least {least}, got {value}")


def cpu_widths(arenas: int) -> LoopWidths:
    """What measures best on a CPU: narrow queues, one cell a turn, loops that end as soon as they can."""
    rays = max(64, min(4096, 2 * arenas))
    return LoopWidths(
        rays=rays,
        observed_rays=8 * rays,
        ray_steps=1,
        walk_steps=1,
        projectiles=4,
        wrecks=8,
        blasts=16,
        resets=1,
        compaction_rounds=3,
    )


def gpu_widths(arenas: int) -> LoopWidths:
    """For a GPU: all arenas in one pass, many cells a turn, no question to the host where a bound is known."""
    return LoopWidths(
        rays=100 * arenas,
        observed_rays=100 * arenas,
        ray_steps=14,
        walk_steps=8,
        projectiles=1024,
        wrecks=max(64, arenas // 8),
        blasts=arenas,
        resets=arenas,
        compaction_rounds=0,
        move_unroll=5,
        fixed_rounds=True,
    )


_SETS = {"cpu": cpu_widths, "gpu": gpu_widths}


def loop_widths(arenas: int, backend: str | None = None) -> LoopWidths:
    """The widths for a number of arenas on a backend (jax's default one without a name), read while a step is traced.

    The environment variable ECHELON_LOOP_WIDTHS, `cpu` or `gpu`, has the last word.

    Raises:
        ValueError: if the environment variable holds anything else.
    """
    name = os.environ.get(ENVIRONMENT_VARIABLE) or ("cpu" if (backend or jax.default_backend()) == "cpu" else "gpu")
    if name not in _SETS:
        raise ValueError(f"{ENVIRONMENT_VARIABLE} must be cpu or gpu, got {name!r}")
    return _SETS[name](arenas)
