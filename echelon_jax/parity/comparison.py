"""One call that compares everything: recorded episodes, recorded queries, recorded worlds and random steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from echelon_jax.parity.fuzzing import fuzz
from echelon_jax.parity.fuzzing.shapes import pair_of_turn, shapes
from echelon_jax.parity.recorded.free_running import follow_files
from echelon_jax.parity.recorded.queries import QueryCount, check_rays, check_worlds
from echelon_jax.parity.recorded.teacher_forced import check_files
from echelon_jax.parity.report import Report


def compare_all(
    chosen: dict[str, list[Path]],
    width: int,
    progress: Callable[[str], None],
    steps: int = 0,
    reference: bool = False,
) -> Report:
    """Compare the chosen files of each section, and random steps.

    Args:
        chosen: files of recordings by section; the sections are "episodes", "queries" and "worlds".
        width: arenas stepped at once.
        progress: is called with one line about each file.
        steps: random steps, shared by the two shapes whose turn it is; the one with more packs gets a fifth.
        reference: whether the plain reference follows the chosen episodes on its own.

    Raises:
        ValueError: ECHELON_FUZZ_TURN is not a whole number.
    """
    begun = time.monotonic()
    report = Report()
    if "worlds" in chosen:
        report.worlds = QueryCount()
        for path in chosen["worlds"]:
            report.worlds.merge(check_worlds(path))
            progress(f"{path.stem}: compared")
    if "queries" in chosen:
        report.rays = {}
        for path in chosen["queries"]:
            for name, count in check_rays(path).items():
                report.rays.setdefault(name, QueryCount()).merge(count)
            progress(f"{path.stem}: compared")
    if "episodes" in chosen:
        report.episodes = check_files(chosen["episodes"], width, progress)
    if reference:
        report.reference = follow_files(chosen.get("episodes", []), progress)
    if steps:
        report.fuzz = _fuzz(steps, progress)
    report.seconds = time.monotonic() - begun
    return report


def _fuzz(steps: int, progress: Callable[[str], None]) -> dict[str, fuzz.Result]:
    small, large = pair_of_turn()
    results = {}
    for name, count in ((small, steps - steps // 5), (large, steps // 5)):
        if count:
            results[name] = fuzz.run(shapes()[name], range(count))
            progress(f"{name}: {count} random steps compared")
    return results
