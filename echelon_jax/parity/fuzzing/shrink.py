"""Small cases of a fault: parts that do not matter are removed, and the rest is kept in a file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from echelon_jax.config import EnvConfig
from echelon_jax.parity.fuzzing.cases import Case, make_case
from echelon_jax.parity.fuzzing.fuzz import WIDTH, agreeing, explanation, fields_of
from echelon_jax.parity.recorded.maps import column_words
from echelon_jax.parity.recorded.teacher_forced import Stepper
from echelon_jax.rules.materials import AIR, COLLIDES, OPAQUE


def _edits(config: EnvConfig, case: Case) -> Iterator[Callable[[Case], Case]]:
    """Ways to make a case smaller, coarse ones first."""

    def on_sim(**parts: Any) -> Callable[[Case], Case]:
        def edit(c: Case) -> Case:
            sim = c.state.sim
            new = {name: change(getattr(sim, name)) for name, change in parts.items()}
            return c.replace(state=c.state.replace(sim=sim.replace(**new)))  # type: ignore[attr-defined, no-any-return]

        return edit

    def without(values: np.ndarray, where: Any, value: Any = 0) -> np.ndarray:
        copy = np.array(values)
        copy[where] = value
        return copy

    everyone = np.ones(config.num_mechs, bool)
    shape = (config.size_z, config.size_y, config.size_x)
    yield on_sim(projectiles=lambda p: p.replace(alive=np.zeros_like(p.alive)))
    yield on_sim(smoke=lambda s: s.replace(life=np.zeros_like(s.life)))
    yield lambda c: c.replace(actions=without(c.actions, everyone))  # type: ignore[attr-defined, no-any-return]
    blocks = [(slice(1, None), slice(None), slice(None))]
    blocks += [
        (slice(None), slice(y, y + 8), slice(x, x + 8)) for y in range(0, shape[1], 8) for x in range(0, shape[2], 8)
    ]
    for block in blocks:
        box = np.zeros(shape, bool)
        box[block] = True
        yield on_sim(grid=lambda g, box=box: _cleared(config, g, box.reshape(-1)))
    for m in range(config.num_mechs):
        yield on_sim(mechs=lambda v, m=m: v.replace(alive=without(v.alive, m, False)))
    for s in np.flatnonzero(case.state.sim.projectiles.alive):
        yield on_sim(projectiles=lambda p, s=s: p.replace(alive=without(p.alive, s, False)))
    for s in np.flatnonzero(case.state.sim.smoke.life):
        yield on_sim(smoke=lambda v, s=s: v.replace(life=without(v.life, s)))
    for m in range(config.num_mechs):
        yield lambda c, m=m: c.replace(actions=without(c.actions, m))


def _cleared(config: EnvConfig, grid: Any, box: np.ndarray) -> Any:
    material = np.where(box, AIR, grid.material).astype(np.uint8)
    return grid.replace(
        material=material,
        hp=np.where(box, 0, grid.hp).astype(np.int16),
        collides=column_words(material[None], COLLIDES, config)[0],
        opaque=column_words(material[None], OPAQUE, config)[0],
    )


def shrink(step: Stepper, config: EnvConfig, case: Case, nudges: int = WIDTH) -> Case:
    """A smaller case that still differs, and that no nudge explains; the same case if there is none."""

    def fails(c: Case) -> bool:
        return not agreeing(fields_of(step, config, [c]), 1)[0] and not explanation(step, config, c, nudges)

    for edit in list(_edits(config, case)):
        smaller = edit(case)
        if fails(smaller):
            case = smaller
    return case


def save_case(path: Path, config: EnvConfig, case: Case) -> None:
    """Write a case as one npz file: the configuration and every leaf by its path."""
    leaves = {jax.tree_util.keystr(where): leaf for where, leaf in jax.tree_util.tree_leaves_with_path(case)}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, config=np.array(json.dumps(dataclasses.asdict(config))), **leaves)


def load_case(path: Path) -> tuple[EnvConfig, Case]:
    """Read what `save_case` wrote; a field that the file is too old to hold is zero."""
    with np.load(path) as file:
        config = EnvConfig.original(**json.loads(str(file["config"])))
        like = make_case(config, 0)
        names = {jax.tree_util.keystr(where): leaf for where, leaf in jax.tree_util.tree_leaves_with_path(like)}
        leaves = [file[name] if name in file.files else np.zeros_like(leaf) for name, leaf in names.items()]
    case = jax.tree.unflatten(jax.tree.structure(like), leaves)
    return config, case
