"""Which part of a decision step or an update a kernel belongs to, by the project's functions on whose behalf it runs."""

from __future__ import annotations

import collections

from echelon_jax.gpu.thunks import Thunk

# In order: the first row one of whose functions (or classes) is among a kernel's frames has it. Phases of the environment come
# first, because they run inside the rollout that the trainer's functions make.
PHASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("noise", ("sample_noise",)),
    ("upkeep", ("upkeep",)),
    ("projectiles", ("update_projectiles",)),
    ("fire", ("fire",)),
    ("move", ("move",)),
    ("simulation", ("simulate_natively",)),
    ("observation", ("observe",)),
    ("reset", ("write_rows", "Echelon.draw_worlds", "Echelon.fresh_state")),
    ("opponent", ("Scripted", "RandomAgent")),
    ("reward and flags", ("Echelon",)),
    ("reset", ("AutoReset",)),
    ("advantages", ("generalized_advantages",)),
    ("update", ("gradient_step", "gradient", "loss_and_metrics", "part_loss", "take_sequences", "in_chunks")),
    ("guard", ("settle", "inspect_update", "finite_or_zero")),
    ("policy", ("ModernNetwork", "OriginalNetwork", "ModernModule", "Factored", "read")),
    ("rollout", ("collect",)),
)
OTHER = "other"
NAMES = tuple(dict.fromkeys(phase for phase, _ in PHASES))
# A loop of one of these has everything inside it: JAX traces a function that two phases share once, under the first one's name.
WHOLE_LOOPS = ("upkeep", "projectiles", "fire", "move", "observation", "reset")


def phase_of(frames: tuple[str, ...]) -> str:
    """Return the phase of a kernel's frames (outermost first), `other` if none is known."""
    present = {*frames, *(frame.split(".")[0] for frame in frames)}
    for phase, functions in PHASES:
        if present.intersection(functions):
            return phase
    return OTHER


def _votes(thunk: Thunk) -> collections.Counter[str]:
    own = thunk.phase if thunk.phase != OTHER else ""
    votes = collections.Counter([own] if own else [])
    for thunks in thunk.inner:
        for child in thunks:
            votes += _votes(child)
    return votes


def attribute(thunks: list[Thunk]) -> None:
    """Set the phase of every thunk: its frames'; of a group without any, that of most it runs; else that of what is around it."""

    def own(thunk: Thunk) -> None:
        thunk.phase = phase_of(thunk.frames)
        for inner in thunk.inner:
            for child in inner:
                own(child)

    def fill(thunk: Thunk, around: str, inside: str | None) -> None:
        if inside is not None:
            thunk.phase = inside
        elif thunk.phase == OTHER:
            votes = _votes(thunk) if thunk.kind != "kWhile" else collections.Counter[str]()
            thunk.phase = votes.most_common(1)[0][0] if votes else around
        if thunk.kind == "kWhile" and thunk.phase in WHOLE_LOOPS:
            inside = thunk.phase
        for inner in thunk.inner:
            for child in inner:
                fill(child, thunk.phase, inside)

    for thunk in thunks:
        own(thunk)
    for thunk in thunks:
        fill(thunk, OTHER, None)
