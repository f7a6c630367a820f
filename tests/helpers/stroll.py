"""A stand-in for the simulation, for tests of what lies around it: it compiles in a moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax.numpy as jnp
import pytest

from echelon_jax.env import environment


def stroll(config, rules, state, commands, noise, widths=None):
    """Everybody walks along x, and nothing else happens."""
    mechs = state.mechs
    moved = mechs.position.at[..., 0].add(jnp.where(mechs.alive, commands.throttle[..., 0], 0.0))
    return state.replace(mechs=mechs.replace(position=moved), tick=state.tick + config.substeps)


@contextmanager
def strolling() -> Iterator[None]:
    """Let environments that are traced inside stroll. A configuration of its own keeps their programs apart from real ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "simulate", stroll)
        yield
