"""The league's part of the train state: frozen policies in slots, results against each member, and a policy that waits for a slot.

Members are counted: 0 the current policy, 1 to K the slots, then the agents. Nothing here leads with arenas, so all of it is the
same on every device. A slot that is to be replaced drains: from then on no episode begins against it, and the waiting policy
takes its place before the first update in which no arena plays it.
"""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.env.buffers import unshared
from echelon_jax.policies.network import Params
from echelon_jax.policies.normalize import Moments

NOBODY = -1
FIRST_RATING = 1500.0


class FrozenPolicy(flax.struct.PyTreeNode):
    """A frozen policy: its parameters and the moments that normalise its observations."""

    params: Params
    moments: Moments


class LeagueState(flax.struct.PyTreeNode):
    """What the league keeps on the device."""

    slots: FrozenPolicy  # leaves lead with slots
    filled: Bool[Array, " slots"]
    counts: Float32[Array, "members 3"]  # games, wins, draws of the learner, which decay from update to update
    window: Float32[Array, "members 3"]  # the same since the host last took them, undecayed
    ratings: Float32[Array, " members"]  # the host writes them
    waiting: FrozenPolicy
    waiting_for: Int32[Array, ""]  # slot, or NOBODY
    waiting_rating: Float32[Array, ""]


class LeagueSums(flax.struct.PyTreeNode):
    """What a rollout tells of the league: sums over arenas, so sums over devices too."""

    results: Float32[Array, "members 3"]  # games, wins, draws of the learner against each member
    playing: Float32[Array, " members"]  # arenas in the middle of an episode against it after the last decision


def begin(params: Params, moments: Moments, slots: int, agents: int) -> LeagueState:
    """Return an empty league: every slot holds a copy of a policy, for its shapes only."""
    members = 1 + slots + agents
    first = FrozenPolicy(params, moments)
    return LeagueState(
        slots=jax.tree.map(lambda x: jnp.repeat(x[None], slots, 0), first),
        filled=jnp.zeros(slots, bool),
        counts=jnp.zeros((members, 3), jnp.float32),
        window=jnp.zeros((members, 3), jnp.float32),
        ratings=jnp.full(members, FIRST_RATING, jnp.float32),
        waiting=jax.tree.map(jnp.copy, first),  # the policy's own arrays are donated
        waiting_for=jnp.full((), NOBODY, jnp.int32),
        waiting_rating=jnp.full((), FIRST_RATING, jnp.float32),
    )


def no_sums(members: int) -> LeagueSums:
    """Return sums over nothing."""
    return LeagueSums(jnp.zeros((members, 3), jnp.float32), jnp.zeros(members, jnp.float32))


def count_results(
    sums: LeagueSums,
    member: Int32[Array, " arenas"],
    over: Bool[Array, " arenas"],
    won: Bool[Array, " arenas"],
    drawn: Bool[Array, " arenas"],
) -> LeagueSums:
    """Add the episodes that have just ended to the results of the member that played them."""
    count = sums.results.shape[0]
    who = (member[:, None] == jnp.arange(count)) & over[:, None]  # [arenas, members]
    result = jnp.stack([jnp.ones_like(over), won, drawn], -1).astype(jnp.float32)
    return sums.replace(results=sums.results + who.astype(jnp.float32).T @ result)  # type: ignore[attr-defined]


def count_playing(sums: LeagueSums, member: Int32[Array, " arenas"]) -> LeagueSums:
    """Set how many arenas play each member."""
    here = member[:, None] == jnp.arange(sums.playing.shape[0])
    return sums.replace(playing=here.sum(0, dtype=jnp.float32))  # type: ignore[attr-defined]


def drawable(state: LeagueState) -> Bool[Array, " members"]:
    """Return which members a new episode may begin against: a filled slot that does not drain, and everybody else."""
    slots = state.filled.shape[0]
    free = state.filled & (jnp.arange(slots) != state.waiting_for)
    rest = state.counts.shape[0] - 1 - slots
    return jnp.concatenate([jnp.ones(1, bool), free, jnp.ones(rest, bool)])


def after_update(state: LeagueState, sums: LeagueSums, decay: float) -> LeagueState:
    """Return the league after an update: results are added, and the waiting policy takes its slot if no arena plays it.

    Args:
        state: before the update.
        sums: of the update's rollout, over all devices.
        decay: factor of the older counts.
    """
    counts, window = decay * state.counts + sums.results, state.window + sums.results
    slot = jnp.maximum(state.waiting_for, 0)
    enters = (state.waiting_for >= 0) & (sums.playing[1 + slot] == 0)
    new = (jnp.arange(state.filled.shape[0]) == slot) & enters

    def enter(waiting: Array, slots: Array) -> Array:
        return jnp.where(new.reshape(-1, *(1,) * (slots.ndim - 1)), waiting[None], slots)

    others = jnp.ones(counts.shape[0], bool).at[1 + slot].set(~enters)
    return LeagueState(
        slots=jax.tree.map(enter, state.waiting, state.slots),
        filled=state.filled | new,
        counts=jnp.where(others[:, None], counts, 0.0),
        window=jnp.where(others[:, None], window, 0.0),  # an opponent's last games are not those of the next one
        ratings=jnp.where(others, state.ratings, state.waiting_rating),
        waiting=state.waiting,
        waiting_for=jnp.where(enters, NOBODY, state.waiting_for),
        waiting_rating=state.waiting_rating,
    )


# -- On the host --------------------------------------------------------------------------------------------------------


def offer(state: LeagueState, slot: int, params: Params, moments: Moments, rating: float = FIRST_RATING) -> LeagueState:
    """Return the league in which a policy waits for a slot; the slot drains if it is filled. Nothing is compiled again.

    Raises:
        ValueError: there is no such slot, or another policy waits already.
    """
    slots = state.filled.shape[0]
    if not 0 <= slot < slots:
        raise ValueError(f"slot must be from 0 to {slots - 1}, got {slot}")
    if int(state.waiting_for) != NOBODY:
        raise ValueError(f"slot must wait: another policy waits for slot {int(state.waiting_for)}")
    waiting: Any = FrozenPolicy(params, moments)
    # Copies: the policy that is offered may be the learner's own, whose arrays are donated.
    offered = state.replace(  # type: ignore[attr-defined]
        waiting=jax.tree.map(lambda new, old: jnp.array(new, old.dtype, copy=True), waiting, state.waiting),
        waiting_for=jnp.full((), slot, jnp.int32),
        waiting_rating=jnp.full((), rating, jnp.float32),
    )
    return unshared(offered)


def fill(state: LeagueState, slot: int, params: Params, moments: Moments, rating: float = FIRST_RATING) -> LeagueState:
    """Return the league with a policy in an empty slot, at the start of a run, while nobody plays it."""
    new: Any = FrozenPolicy(params, moments)
    filled = state.replace(  # type: ignore[attr-defined]
        slots=jax.tree.map(lambda x, slots: slots.at[slot].set(jnp.asarray(x, slots.dtype)), new, state.slots),
        filled=state.filled.at[slot].set(True),
        ratings=state.ratings.at[1 + slot].set(rating),
    )
    return unshared(filled)


def take_window(state: LeagueState) -> LeagueState:
    """Return the league whose window is empty, after the host has read it."""
    return state.replace(window=jnp.zeros_like(state.window))  # type: ignore[attr-defined]
