"""What a trainer looks at when learning goes wrong: gradients by part, dead units, and the entries with the worst ratios.

All of it is computed inside the compiled update and has fixed shapes. A network may offer two methods, and needs none of them:

    gradient_parts(grads) -> dict[str, Params]      the parts of a gradient by name; by default the leading names of the tree
    activations(params, observation) -> dict[str, Array]    outputs of its ReLU layers before the memory
"""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.policies.features import Observation
from echelon_jax.policies.network import Network, Params
from echelon_jax.training.devices import ALONE, AXIS, Across
from echelon_jax.training.vector import parted

SAMPLED_STEPS = 4  # decisions of a rollout whose activations are looked at


class WorstRatios(flax.struct.PyTreeNode):
    """The k entries whose new probability differs most from the old one, the worst first.

    Whole numbers are held as float32, which is exact below 2**24.
    """

    log_ratio: Float32[Array, "*batch k"]
    arena: Float32[Array, "*batch k"]
    time: Float32[Array, "*batch k"]  # decision of the rollout
    mech: Float32[Array, "*batch k"]  # of the learner's team
    head: Float32[Array, "*batch k"]
    old_log_prob: Float32[Array, "*batch k"]
    new_log_prob: Float32[Array, "*batch k"]
    raw_action: Float32[Array, "*batch k raw"]


class PartNorms(flax.struct.PyTreeNode):
    """Norms of the parts of a gradient, in the order of their names."""

    norms: Float32[Array, "*batch parts"]
    names: tuple[str, ...] = flax.struct.field(pytree_node=False)


def largest_in(rows: Float32[Array, "rows columns"], k: int) -> Int32[Array, " k"]:
    """Return where the k largest numbers are in `rows.ravel()`, the largest first and the first of equals before the others.

    The largest of every row are found first, and then those among them. XLA for GPUs splits a longer search than 2**20 numbers
    itself, and for some lengths never ends doing so: the update of 8,192 arenas could not be compiled (JAX 0.10.2).
    """
    columns = rows.shape[1]
    values, place = jax.lax.top_k(rows, min(k, columns))
    _, largest = jax.lax.top_k(values.ravel(), k)
    return (place + jnp.arange(rows.shape[0], dtype=jnp.int32)[:, None] * columns).ravel()[largest]


def worst_ratios(
    k: int,
    log_ratio: Float32[Array, "time sequences mechs heads"],
    old_log_prob: Float32[Array, "time sequences mechs heads"],
    raw_action: Float32[Array, "time sequences mechs raw"],
) -> WorstRatios | None:
    """Return the k entries with the largest |log ratio|, with the number of the sequence as `arena`; None for k = 0.

    Entries that do not count must have the log ratio 0.
    """
    if not k:
        return None
    k = min(k, log_ratio.size)
    log_ratio, old_log_prob = jax.lax.stop_gradient((log_ratio, old_log_prob))
    largest = largest_in(jnp.abs(log_ratio).reshape(log_ratio.shape[0], -1), k)
    time, sequence, mech, head = jnp.unravel_index(largest, log_ratio.shape)
    ratio, old = log_ratio.ravel()[largest], old_log_prob.ravel()[largest]
    names = {"arena": sequence, "time": time, "mech": mech, "head": head}
    return WorstRatios(
        log_ratio=ratio,
        old_log_prob=old,
        new_log_prob=old + ratio,
        raw_action=raw_action[time, sequence, mech],
        **{name: x.astype(jnp.float32) for name, x in names.items()},
    )


def in_rollout(
    worst: WorstRatios | None, sequences: Int32[Array, " sequences"], arenas: int, length: int
) -> WorstRatios | None:
    """Return entries of a minibatch with their places in the rollout.

    Args:
        worst: entries whose `arena` is a number in the minibatch and whose `time` is one in the chunk.
        sequences: which sequences the minibatch holds; sequence s is chunk s // arenas of arena s % arenas.
        arenas: of the rollout.
        length: decisions of a chunk.
    """
    if worst is None:
        return None
    sequence = sequences[worst.arena.astype(jnp.int32)]
    return worst.replace(
        arena=(sequence % arenas).astype(jnp.float32),
        time=worst.time + ((sequence // arenas) * length).astype(jnp.float32),
    )


def worst_of(worst: WorstRatios | None, across: Across = ALONE, arenas: int = 0) -> WorstRatios | None:
    """Return the k worst of entries that were gathered in several gradient steps, [steps, k].

    Args:
        worst: the entries.
        across: the devices that gathered them; the worst of all of them are returned, the same on each.
        arenas: of one device.
    """
    if worst is None:
        return None
    k = worst.log_ratio.shape[-1]
    if across.devices > 1:
        before = jax.lax.axis_index(AXIS).astype(jnp.float32) * arenas
        worst = jax.lax.all_gather(worst.replace(arena=worst.arena + before), AXIS)
    rows = worst.log_ratio.ndim
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[rows:]), worst)
    _, largest = jax.lax.top_k(jnp.abs(flat.log_ratio), k)
    return jax.tree.map(lambda x: x[largest], flat)


def gradient_parts(network: Network, grads: Params) -> dict[str, Params]:
    """Return the parts of a gradient by name; together they hold every leaf once.

    Without a method of the network these are the leading names of the tree, a kernel together with its bias.
    """
    own = getattr(network, "gradient_parts", None)
    if own is not None:
        return own(grads)
    if not isinstance(grads, dict):
        return {"all": grads}
    parts: dict[str, Params] = {}
    for name, tree in grads.items():
        parts.setdefault(name.removesuffix("_kernel").removesuffix("_bias"), []).append(tree)
    return parts


def part_norms(network: Network, grads: Float32[Array, " entries"], like: Params) -> PartNorms:
    """Return the norm of each part of a gradient; their squares add up to that of the whole.

    Args:
        grads: the gradient as a vector (training/vector.py).
        like: the parameters, for their shapes.
    """
    entries = parted(np.arange(grads.size), like)
    parts = gradient_parts(network, entries)
    part_of = np.zeros(grads.size, np.int32)
    for number, tree in enumerate(parts.values()):
        for leaf in jax.tree.leaves(tree):
            part_of[np.asarray(leaf)] = number
    # One kernel for all parts, where a sum for each leaf is two or three for each.
    own = jnp.asarray(part_of) == jnp.arange(len(parts), dtype=jnp.int32)[:, None]
    return PartNorms(jnp.sqrt(jnp.where(own, jnp.square(grads), 0.0).sum(1)), tuple(parts))


def dead_units(
    network: Network,
    params: Params,
    observation: Observation,
    alive: Bool[Array, "time arenas mechs"],
    across: Across = ALONE,
) -> dict[str, Float32[Array, ""]]:
    """Return, by layer, the share of ReLU units that are 0 for every living mech in some decisions of a rollout.

    Decisions are `SAMPLED_STEPS` evenly spread ones, so that it costs that many encodings an update. Empty for a network without
    `activations`.
    """
    look = getattr(network, "activations", None)
    if look is None:
        return {}
    times = np.unique(np.linspace(0, alive.shape[0] - 1, SAMPLED_STEPS).astype(np.int32))
    seen, living = jax.tree.map(lambda x: x[times], (observation, alive))
    return {name: _share_dead(x, living, across) for name, x in jax.lax.stop_gradient(look(params, seen)).items()}


def _share_dead(x: Array, alive: Bool[Array, "time arenas mechs"], across: Across) -> Float32[Array, ""]:
    active = x > 0
    if x.shape[:3] == alive.shape and x.ndim > 3:  # what an arena shares has no axis of mechs
        active = active & alive.reshape(*alive.shape, *(1,) * (x.ndim - 3))
    used = active.any(tuple(range(x.ndim - 1))).astype(jnp.float32)
    return 1.0 - across.most(used).mean()
