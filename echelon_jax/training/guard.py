"""The guard drops an update that goes wrong, counts and names it, and rolls the run back if updates keep going wrong.

Everything here is part of the compiled program. `inspect_update` looks at an update; `settle` keeps or drops it. After
`patience` bad updates in a row the learner is rolled back to the last snapshot, with a fresh optimiser and a lower learning
rate. After `retries` such rollbacks the guard gives up (`failed`), holds the learner at the snapshot, and the host stops the
run.

The snapshot is the learner as it entered the last good update. A rollout and an update have shown that this learner works,
while nothing is known yet of the learner that came out. A dropped update costs its data and nothing else; the mechs play on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.env.buffers import unshared
from echelon_jax.training.choosing import choose
from echelon_jax.training.devices import ALONE, Across
from echelon_jax.training.vector import first_bad_leaf, joined

CAUSES = ("loss", "gradient", "parameter", "observation", "rollout", "ratio", "kl", "entropy", "spike")
LOSSES = ("loss", "policy_loss", "value_loss", "entropy")  # of the update's metrics
_COLUMNS = 2**16  # a location in observations is 2^16 x tensor + column
_MEMORY = 0.99  # share of the running loss that an update keeps
_SEEN = 20  # updates before a loss can be a spike


@dataclasses.dataclass(frozen=True)
class GuardConfig:
    """The limits beyond which an update is bad, and what follows. `TrainConfig.guard_*` documents each field."""

    patience: int
    retries: int
    recovery: int
    rate_factor: float
    ratio: float
    kl: float
    entropy_drop: float
    loss: float


class Learner(flax.struct.PyTreeNode):
    """The part of the train state that an update changes."""

    params: Any
    optimizer: Any
    observation_moments: Any
    return_moments: Any


class GuardState(flax.struct.PyTreeNode):
    """The memory of the guard; part of the TrainState."""

    params: Any  # the snapshot
    observation_moments: Any
    return_moments: Any
    streak: Int32[Array, ""]  # bad updates in a row
    good: Int32[Array, ""]  # good updates in a row
    retries: Int32[Array, ""]  # rollbacks that are not yet forgiven
    failed: Bool[Array, ""]
    counts: Int32[Array, " causes"]  # bad updates of the run by cause
    loss_mean: Float32[Array, ""]
    loss_square: Float32[Array, ""]
    seen: Int32[Array, ""]


class Finding(flax.struct.PyTreeNode):
    """The faults of an update by cause, each with its location: the number of a parameter, loss, tensor or head."""

    causes: Bool[Array, " causes"]
    where: Int32[Array, " causes"]
    loss: Float32[Array, ""]  # mean over the gradient steps

    @property
    def bad(self) -> Bool[Array, ""]:
        """Whether the update has any fault."""
        return self.causes.any()


class Report(flax.struct.PyTreeNode):
    """What the host learns about an update."""

    causes: Bool[Array, " causes"]
    where: Int32[Array, " causes"]
    dropped: Bool[Array, ""]
    rolled_back: Bool[Array, ""]
    failed: Bool[Array, ""]
    rate: Float32[Array, ""]  # factor of the learning rate from the next update on


@dataclasses.dataclass(frozen=True)
class Names:
    """The names of the numbers in `Finding.where`."""

    params: tuple[str, ...]
    observation: tuple[str, ...]
    rollout: tuple[str, ...]
    heads: tuple[str, ...]

    def of(self, cause: str, where: int) -> str:
        """Return the name of the tensor or head of one fault."""
        if cause in ("gradient", "parameter"):
            return self.params[where]
        if cause == "observation":
            return f"{self.observation[where // _COLUMNS]}, column {where % _COLUMNS}"
        if cause == "rollout":
            return self.rollout[where]
        if cause == "loss":
            return LOSSES[where]
        return self.heads[where] if cause in ("ratio", "kl", "entropy") else "loss"


def names_of(params: Any, observation: Sequence[str], rollout: Sequence[str], heads: Sequence[str]) -> Names:
    """Return the names for trees of the same structure as those of `inspect_update`; `params` may be shapes only."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    paths = tuple("/".join(str(getattr(k, "key", k)) for k in path) for path, _ in leaves)
    return Names(paths, tuple(observation), tuple(rollout), tuple(heads))


def begin(params: Any, observation_moments: Any, return_moments: Any) -> GuardState:
    """Return the guard of a run that starts from a learner."""
    zero, nothing = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32)
    copies = (
        jax.tree.map(jnp.copy, x) for x in (params, observation_moments, return_moments)
    )  # the learner's are donated
    params, observation_moments, return_moments = copies
    state = GuardState(
        params=params,
        observation_moments=observation_moments,
        return_moments=return_moments,
        streak=zero,
        good=zero,
        retries=zero,
        failed=jnp.zeros((), bool),
        counts=jnp.zeros(len(CAUSES), jnp.int32),
        loss_mean=nothing,
        loss_square=nothing,
        seen=zero,
    )
    return unshared(state)  # it is donated with the learner


def rate(config: GuardConfig, state: GuardState) -> Float32[Array, ""]:
    """Return the factor of the learning rate: rate_factor to the power of the rollbacks not yet forgiven."""
    return jnp.float32(config.rate_factor) ** state.retries.astype(jnp.float32)


def first_bad(tree: Any) -> Int32[Array, ""]:
    """Return 1 + the number of the first leaf that is not finite, 0 if all are."""
    bad = jnp.stack([~jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)])
    return jnp.where(bad.any(), 1 + bad.argmax(), 0).astype(jnp.int32)


def inspect_update(
    config: GuardConfig,
    state: GuardState,
    metrics: Any,
    params: Any,
    observation: Any,
    rollout: Mapping[str, Float32[Array, "*_shape"]],
    head_units: Float32[Array, " heads"],
    across: Across = ALONE,
    taught: Bool[Array, ""] | bool = False,
) -> Finding:
    """Return the faults of an update, the same on all devices.

    Args:
        metrics: `ppo.UpdateMetrics` of all gradient steps, [epochs, minibatches, ...]; steps left out have `stopped` 1.
        params: the parameters after the update.
        observation: the observations that the update read; columns are the last axis.
        rollout: other numbers that the update read, by name; 0 where they do not count.
        head_units: divisors of the heads' entropies, after which an even choice has 1.
        across: the devices.
        taught: whether a teacher leads the policy (training/teacher.py). It may then move as far as it likes: ratio, KL and
            entropy are no faults.
    """
    steps = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), metrics)
    done = steps.stopped == 0
    found: dict[str, tuple[Array, Array]] = {}

    losses = jnp.stack([getattr(steps, name) for name in LOSSES], -1)
    bad_loss = (~jnp.isfinite(losses) & done[:, None]).any(0)
    found["loss"] = bad_loss.any(), bad_loss.argmax()
    gradient = jnp.where(done, steps.bad_gradient, 0).max()
    found["gradient"] = gradient > 0, gradient - 1
    parameter = first_bad_leaf(joined(params), params)
    found["parameter"] = parameter > 0, parameter - 1
    found["observation"] = _location(observation)
    number = first_bad(dict(enumerate(rollout.values())))
    found["rollout"] = number > 0, number - 1
    for name in ("observation", "rollout"):  # these numbers are a device's own
        bad, location = found[name]
        latest = across.most(jnp.where(bad, location, -1).astype(jnp.int32))
        found[name] = latest >= 0, latest

    # The head that moved most is the one to name. Not a number is the loss's fault, and named there.
    head_kl = jnp.where(done[:, None], steps.head_kl, 0.0)
    worst = jnp.where(jnp.isfinite(head_kl), head_kl, jnp.inf).max(0).argmax()
    found["ratio"] = (done & (steps.ratio_error > config.ratio)).any(), worst
    found["kl"] = (done & (steps.kl > config.kl)).any(), worst
    first, last = steps.head_entropy[0], steps.head_entropy[jnp.maximum(done.sum() - 1, 0)]
    fall = (first - last) / head_units
    found["entropy"] = (fall > config.entropy_drop).any(), jnp.where(jnp.isfinite(fall), fall, -jnp.inf).argmax()

    for name in ("ratio", "kl", "entropy"):
        found[name] = found[name][0] & ~jnp.asarray(taught), found[name][1]

    loss = jnp.abs(jnp.where(done, steps.loss, 0.0).sum() / jnp.maximum(done.sum(), 1))
    deviation = jnp.sqrt(jnp.maximum(state.loss_square - jnp.square(state.loss_mean), 0.0))
    usual = jnp.maximum(state.loss_mean + 6.0 * deviation, 3.0 * state.loss_mean)
    found["spike"] = (state.seen >= _SEEN) & (loss > jnp.maximum(config.loss, usual)), jnp.zeros((), jnp.int32)

    causes, where = zip(*(found[name] for name in CAUSES), strict=True)
    return Finding(jnp.stack(causes), jnp.stack([w.astype(jnp.int32) for w in where]), loss)


def settle(
    config: GuardConfig,
    state: GuardState,
    finding: Finding,
    before: Learner,
    after: Learner,
    fresh_optimizer: Any,
    branch: bool = True,
) -> tuple[Learner, GuardState, Report]:
    """Return the learner to go on with, the guard's memory and the report.

    Args:
        before: the learner before the update; `after` is the one after it.
        fresh_optimizer: the optimiser's state after a rollback.
        branch: see `choosing.choose`; the result is the same.
    """
    bad = finding.bad
    applied = ~bad & ~state.failed
    streak = jnp.where(bad, state.streak + 1, 0)
    enough = bad & (streak >= config.patience) & ~state.failed
    give_up = enough & (state.retries >= config.retries)
    rolled_back = enough & ~give_up

    # Until an update has been good there is no snapshot (a run may start from another's parameters): then where it began.
    snapshot = Learner(state.params, fresh_optimizer, state.observation_moments, state.return_moments)
    began = before.replace(optimizer=fresh_optimizer)  # type: ignore[attr-defined]
    snapshot = choose(state.seen > 0, snapshot, began, branch)
    learner = choose(applied, after, choose(enough, snapshot, before, branch), branch)
    kept_before = (before.params, before.observation_moments, before.return_moments)
    kept_earlier = (state.params, state.observation_moments, state.return_moments)
    params, observation_moments, return_moments = choose(applied, kept_before, kept_earlier, branch)
    good = jnp.where(applied, state.good + 1, jnp.where(bad, 0, state.good))
    forgiven = applied & (good >= config.recovery) & (state.retries > 0)
    kept = jnp.where(state.seen > 0, _MEMORY, 0.0)

    def follow(old: Array, new: Array) -> Array:
        return jnp.where(applied, kept * old + (1.0 - kept) * new, old)

    new = GuardState(
        params=params,
        observation_moments=observation_moments,
        return_moments=return_moments,
        streak=jnp.where(enough, 0, streak),
        good=jnp.where(forgiven, 0, good),
        retries=state.retries + rolled_back.astype(jnp.int32) - forgiven.astype(jnp.int32),
        failed=state.failed | give_up,
        counts=state.counts + finding.causes.astype(jnp.int32),
        loss_mean=follow(state.loss_mean, finding.loss),
        loss_square=follow(state.loss_square, jnp.square(finding.loss)),
        seen=state.seen + applied.astype(jnp.int32),
    )
    return learner, new, Report(finding.causes, finding.where, ~applied, rolled_back, new.failed, rate(config, new))


def all_well(state: GuardState) -> Report:
    """Return the report of a guard that is off."""
    no = jnp.zeros((), bool)
    none = jnp.zeros(len(CAUSES), bool)
    return Report(none, jnp.zeros(len(CAUSES), jnp.int32), no, no, no, jnp.ones((), jnp.float32))


def again(state: GuardState) -> GuardState:
    """Return the guard of a run that is resumed by hand after it gave up. Only the counts stay."""
    zero = jnp.zeros_like(state.streak)
    fresh = state.replace(streak=zero, good=zero, retries=zero, failed=jnp.zeros_like(state.failed))  # type: ignore[attr-defined]
    return unshared(fresh)


def finite_or_zero(tree: Any) -> Any:
    """Return a tree with zeros for entries that are not finite, so that a memory with NaN starts anew."""
    return jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0), tree)


# -- On the host --------------------------------------------------------------------------------------------------------


def events(names: Names, report: Report, first_update: int) -> list[dict[str, Any]]:
    """Return one entry per bad update of a call; `report` is stacked over the updates from `first_update` on."""
    out = []
    causes, where = np.asarray(report.causes), np.asarray(report.where)
    for i in np.flatnonzero(np.asarray(report.dropped)):
        named = {c: names.of(c, int(where[i, k])) for k, c in enumerate(CAUSES) if causes[i, k]}
        entry = {"event": "guard", "update": first_update + int(i), "causes": named}
        out.append(entry | {k: bool(getattr(report, k)[i]) for k in ("rolled_back", "failed")})
    return out


def sentence(event: Mapping[str, Any]) -> str:
    """Return an event as one line of text."""
    what = "; ".join(f"{cause} ({location})" for cause, location in event["causes"].items()) or "the guard had given up"
    then = (
        "the run stops"
        if event["failed"]
        else "rolled back to the last snapshot"
        if event["rolled_back"]
        else "not applied"
    )
    return f"update {event['update']} was bad: {what}; {then}"


def _location(tree: Any) -> tuple[Bool[Array, ""], Int32[Array, ""]]:
    """Whether any leaf is not finite, and the first such leaf and column."""
    some, location = [], []
    for number, leaf in enumerate(jax.tree.leaves(tree)):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            continue
        # 0 times what is not finite is NaN, which is not 0. A CPU adds floats up three times as fast as it joins flags.
        columns = (leaf * 0.0).sum(tuple(range(leaf.ndim - 1))) != 0.0
        some.append(columns.any())
        location.append(number * _COLUMNS + columns.argmax())
    bad = jnp.stack(some)
    return bad.any(), jnp.stack(location)[bad.argmax()].astype(jnp.int32)
