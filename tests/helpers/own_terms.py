"""Reward terms of a user's own, for tests that name them by their import path."""

from __future__ import annotations

import jax.numpy as jnp


def steps(before, after, tally):
    """The number of the step, for the living and the dead."""
    return jnp.broadcast_to(after.step_count[:, None].astype(jnp.float32), after.sim.mechs.alive.shape)


def lived(before, after, tally):
    """1 for mechs that lived at the decision, as integers."""
    return before.sim.mechs.alive.astype(jnp.int32)


def narrow(before, after, tally):
    """A result of the wrong shape."""
    return after.step_count


def fails(before):
    """A function of other arguments."""
    return before


NUMBER = 3
