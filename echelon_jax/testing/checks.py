"""What every environment must satisfy: each check turns evidence into sentences, one for each fault."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import flax.struct
import jax
import numpy as np

from echelon_jax.env.episode import BLUE_WINS, ELIMINATION, TIME_UP
from echelon_jax.env.reward_terms import terms_of
from echelon_jax.env.state import STATISTICS, Step
from echelon_jax.policies.heads import CATEGORICAL, Heads
from echelon_jax.testing.scenes import ARENAS, BAD, DEATH, DECISIONS, ELIMINATED, FORCED, LATE, VICTIM, Evidence

NAMES = ("nothing happens", "a mech is dead", "a team is dead", "time is up")  # of the arenas


def named_steps(seen: Evidence) -> Iterator[tuple[str, Step]]:
    """Every step with the words for it: the reset, then the decisions."""
    yield "the reset", seen.reset
    for i, step in enumerate(seen.steps):
        yield f"decision {i}", step


def spaces(env: Any, params: Any, seen: Evidence) -> Iterator[str]:
    """Spaces have bounds in order and hold what is seen and drawn."""
    for name, space in (("observation", env.observation_space(params)), ("action", env.action_space(params))):
        if space.dtype != np.float32:
            yield f"{name}_space must be of float32, got {space.dtype}"
        if not (space.low <= space.high).all():
            yield f"{name}_space must have low at most high, which entry {np.argmax(space.low > space.high)} has not"
        if not space.contains(np.asarray(space.sample(jax.random.key(0), (8,)))):
            yield f"{name}_space must contain what it samples"
    size, space = seen.reset.observation.shape[-1], env.observation_space(params)
    if space.shape != (size,):
        yield f"observation_space must have the shape of an observation, ({size},), got {space.shape}"
        return
    for when, step in named_steps(seen):
        for field in ("observation", "final_observation"):
            values = getattr(step, field)
            wrong = ~((values >= space.low) & (values <= space.high))
            if wrong.any():
                arena, mech, entry = np.argwhere(wrong)[0]
                yield (
                    f"{field} must lie in observation_space: at {when} entry {entry} of mech {mech} is "
                    f"{values[arena, mech, entry]:g}, and the bounds are {space.low[entry]:g} and {space.high[entry]:g}"
                )
                return


def shapes(env: Any, params: Any, seen: Evidence) -> Iterator[str]:
    """Every field of a step has the shape and the dtype that its annotation names."""
    sizes = {
        "arenas": ARENAS,
        "mechs": env.config.num_mechs,
        "obs": seen.reset.observation.shape[-1],
        "terms": len(terms_of(env.config)),
    }
    for when, step in named_steps(seen):
        found = list(_wrong_fields(step, "step", sizes))
        yield from (f"{sentence} at {when}" for sentence in found)
        if found:
            return


def _wrong_fields(value: Any, where: str, sizes: dict[str, int]) -> Iterator[str]:
    for name, hint in typing.get_type_hints(type(value), include_extras=True).items():
        field = getattr(value, name)
        if isinstance(field, flax.struct.PyTreeNode):
            yield from _wrong_fields(field, f"{where}.{name}", sizes)
        elif field is not None and hasattr(hint, "dim_str"):
            shape = tuple(sizes[axis] if axis in sizes else int(axis) for axis in hint.dim_str.split())
            if field.shape != shape or str(field.dtype) not in hint.dtypes:
                wanted = f"{hint.dtypes[0]} [{', '.join(hint.dim_str.split())}] = {shape}"
                yield f"{where}.{name} must be {wanted}, got {field.dtype} {field.shape}"


def compiles_once(env: Any, params: Any, seen: Evidence) -> Iterator[str]:
    """A state has one shape and dtype per leaf, whatever it came from."""
    first = seen.signatures[0]
    for i, later in enumerate(seen.signatures[1:], 1):
        if later.keys() != first.keys():
            leaves = ", ".join(sorted(later.keys() ^ first.keys()))
            yield f"the state must keep its structure: {leaves} came or went by decision {i}, so the step is compiled again"
            return
        for leaf, now in later.items():
            if now != first[leaf]:
                yield (
                    f"the state must keep its shapes and dtypes: {leaf} is {first[leaf]} after the reset and {now} at "
                    f"decision {i}, so the step is compiled again"
                )
                return


def finite(env: Any, params: Any, seen: Evidence) -> Iterator[str]:
    """No number of a step is NaN or infinite, not even after an action that is."""
    for i, (when, step) in enumerate(named_steps(seen)):
        for path, leaf in jax.tree_util.tree_leaves_with_path(step):
            if np.issubdtype(leaf.dtype, np.floating) and not np.isfinite(leaf).all():
                after = ", whose actions were not finite" if i == BAD + 1 else ""
                yield f"step{jax.tree_util.keystr(path)} must be finite, and is not at {when}{after}"
                return


def bad_actions_are_counted(env: Any, params: Any, seen: Evidence) -> Iterator[str]:
    """An action that is not finite is replaced and counted."""
    row = STATISTICS.index("bad_actions")
    before, after = (seen.steps[i].info.statistics[0, row, 0] for i in (BAD - 1, BAD))
    if after != before + 1:
        yield f"an action that is not finite must add 1 to the statistic bad_actions, which went from {before:g} to {after:g}"


def masks(env: Any, params: Any, seen: Evidence) -> Iterator[str]:
    """The action mask leaves every categorical head a choice."""
    heads = Heads(env.config)
    mask = np.asarray(heads.action_mask(seen.reset.observation))
    wanted = (*seen.reset.observation.shape[:-1], heads.mask_size)
    if mask.shape != wanted or mask.dtype != bool:
        yield f"the action mask must be bool {wanted}, got {mask.dtype} {mask.shape}"
        return
    for head in heads.table:
        if head.kind == CATEGORICAL and not mask[..., head.action_mask.start].all():
            yield f"the action mask must allow the first choice of the head {head.name} to every mech"


def flags(env: Any, params: Any, seen: Evidence) -> Iterator[str]:
    """`terminated` and `truncated` exclude each other, and say for each mech what the arena's end says for all."""
    for when, step in named_steps(seen):
        if (step.terminated & step.truncated).any():
            yield f"terminated and truncated must never both be true, as they are at {when}"
        over = step.episode_over[:, None]
        if (over & ~(step.terminated | step.truncated)).any():
            yield f"every mech must be terminated or truncated where the episode is over, which one is not at {when}"
        if (~over & (step.terminated != ~step.info.alive)).any():
            yield f"terminated must be true for exactly the dead while the episode runs, which it is not at {when}"
        if (~over & step.truncated).any():
            yield f"truncated must be false while the episode runs, which it is not at {when}"


def the_dead(env: Any, params: Any, seen: Evidence) -> Iterator[str]:
    """A dead mech is terminated, sees zeros, earns nothing, and stays dead until its episode ends."""
    for i in range(FORCED, DECISIONS):
        step = seen.steps[i]
        if step.episode_over[DEATH]:
            return
        faults = {
            "must be terminated": not step.terminated[DEATH, VICTIM],
            "must see zeros": bool(step.observation[DEATH, VICTIM].any()),
            "must earn nothing": step.reward[DEATH, VICTIM] != 0,
            "must stay dead until its episode ends": bool(step.info.alive[DEATH, VICTIM]),
        }
        found = [words for words, fault in faults.items() if fault]
        yield from (f"a dead mech {words}, which it does not at decision {i}" for words in found)
        if found:
            return


def ends(env: Any, params: Any, seen: Evidence) -> Iterator[str]:
    """A team without living mechs loses; at the time limit the living are truncated."""
    step = seen.steps[FORCED]
    for arena, reason in ((ELIMINATED, ELIMINATION), (LATE, TIME_UP)):
        if not step.episode_over[arena]:
            yield f"the episode must be over where {NAMES[arena]}"
        elif step.info.reason[arena] != reason:
            yield f"info.reason must be {reason} where {NAMES[arena]}, got {step.info.reason[arena]}"
    if step.info.winner[ELIMINATED] != BLUE_WINS:
        yield f"info.winner must be {BLUE_WINS} (blue) where only blue lives, got {step.info.winner[ELIMINATED]}"
    if step.truncated[ELIMINATED].any():
        yield "a game that is decided must be terminated, not truncated"
    if not step.truncated[LATE].any():
        yield "the living must be truncated where time is up"


def reset_on_done(env: Any, params: Any, seen: Evidence) -> Iterator[str]:
    """The step that ends an episode begins the next one, and keeps the last observation of the old one."""
    step, state, after = seen.steps[FORCED], seen.states[FORCED + 1], seen.steps[FORCED + 1]
    over = np.array([ELIMINATED, LATE])
    if state.step_count[over].any() or state.episode_over[over].any():
        yield "the state must be the start of a new episode after the step that ended one"
    elif not state.sim.mechs.alive[over].all():
        yield "every mech must live at the start of a new episode"
    if (step.info.step_count[over] == 0).any():
        yield "info must be that of the episode that ended, and its step_count is 0"
    if not step.observation[over].any(-1).all():
        yield "observation must show the new episode after the step that ended one, and a mech sees only zeros"
    if (step.observation[over] == step.final_observation[over]).all():
        yield "final_observation must show the end of the old episode, and it is the observation of the new one"
    if (after.info.step_count[over] != 1).any():
        yield "the new episode must be at its first decision one step after the old one ended"


def stays_over(env: Any, params: Any, seen: Evidence) -> Iterator[str]:
    """Without automatic reset an arena stays as it ended and earns nothing."""
    step, after = seen.steps[FORCED], seen.steps[FORCED + 1]
    over = np.array([ELIMINATED, LATE])
    if not after.episode_over[over].all():
        yield "a finished arena must stay over until it is reset"
    if (after.info.step_count[over] != step.info.step_count[over]).any():
        yield "a finished arena must not count further decisions"
    if after.reward[over].any():
        yield "a finished arena must earn nothing"


def final_observation(env: Any, params: Any, seen: Evidence) -> Iterator[str]:
    """While an episode runs, the final observation is the observation; at its end the dead see zeros in it."""
    for when, step in named_steps(seen):
        running = ~step.episode_over
        if (step.final_observation[running] != step.observation[running]).any():
            yield f"final_observation must be the observation while the episode runs, which it is not at {when}"
            return
    last = seen.steps[FORCED].final_observation
    mechs = env.config.num_mechs
    if last[ELIMINATED, mechs // 2 :].any():
        yield "final_observation must show zeros to the dead of the episode that ended"
    if not last[ELIMINATED, : mechs // 2].any(-1).all():
        yield "final_observation must show the end of the episode to the living"


def counts(env: Any, params: Any, seen: Evidence) -> Iterator[str]:
    """`info.step_count` counts the decisions of an episode."""
    found = [int(step.info.step_count[0]) for step in (seen.reset, *seen.steps)]
    if found != list(range(DECISIONS + 1)):
        yield f"info.step_count must count the decisions from 0, got {', '.join(map(str, found))}"


def deterministic(env: Any, params: Any, seen: Evidence) -> Iterator[str]:
    """The same state, key and actions give the same step."""
    for leaf in _different(seen.steps[-1], seen.again, 0.0):
        yield f"a step must be a function of its arguments: {leaf} differs when the same step is computed twice"
        return


def independent(env: Any, params: Any, seen: Evidence) -> Iterator[str]:
    """An arena depends on its own key, state and actions alone."""
    for leaf in _different(seen.steps[-1], seen.turned, 1e-4):
        yield f"an arena must not depend on its place in the batch: {leaf} differs when the arenas stand in another order"
        return


def one_arena(env: Any, params: Any, seen: Evidence) -> Iterator[str]:
    """`jax.vmap` of the step of one arena is the step of a batch."""
    if seen.single is None:
        return
    for leaf in _different(seen.steps[-1], seen.single, 1e-4):
        yield f"jax.vmap(env.step) must give what env.step_batch gives: {leaf} differs"
        return


def _different(a: Any, b: Any, tolerance: float) -> Iterator[str]:
    """Names of the leaves that differ; flags and whole numbers must be equal."""
    leaves, others = jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b)
    for (path, x), y in zip(leaves, others, strict=True):
        close = np.allclose(x, y, tolerance, tolerance, equal_nan=True) if x.dtype.kind == "f" else np.array_equal(x, y)
        if not close:
            yield "step" + jax.tree_util.keystr(path)


CHECKS = (
    shapes,
    spaces,
    compiles_once,
    finite,
    bad_actions_are_counted,
    masks,
    flags,
    the_dead,
    ends,
    final_observation,
    counts,
    deterministic,
    independent,
    one_arena,
)
