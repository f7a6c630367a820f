"""What saves memory or questions to the host changes no update: parts of a minibatch, recomputed activations, dropped steps."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from training.test_ppo import CARRY, CONFIG, NETWORK, OPTIMIZER, PARAMS, random_batch

from echelon_jax.policies.distributions import SquashedGaussian
from echelon_jax.training import loss, ppo
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.loss import parts_for_a_cache

# The entropy counts a lot, so that other noise in its estimate would show.
SCHEDULE = ppo.UpdateSchedule(jnp.float32(1e-3), jnp.float32(0.5))
LARGE = dataclasses.replace(CONFIG, worst_ratios=3)


def uneven_batch():
    """A batch whose later arenas have fewer living mechs, so that a mean of the parts' means would be another number."""
    batch = random_batch()
    return batch.replace(policy_mask=batch.policy_mask.at[:, 2:, 0].set(False))


def learnt(config, batch=None):
    carries = jax.tree.map(lambda x: x[None], CARRY)
    state = OPTIMIZER.init(PARAMS)

    def run(batch, carries):
        return ppo.update(NETWORK, config, OPTIMIZER, SCHEDULE, PARAMS, state, carries, batch, jax.random.key(0))

    return jax.jit(run)(uneven_batch() if batch is None else batch, carries)


@pytest.fixture(scope="module")
def plain():
    return learnt(LARGE)


@pytest.mark.parametrize("change", [{"accumulate": 2}, {"accumulate": 2, "remat": True}], ids=str)
def test_parts_and_recomputing_give_the_same_update(plain, change):
    other = learnt(dataclasses.replace(LARGE, **change))
    # Adam's step is near the sign of a gradient where that is tiny, so its memory of the gradients is compared besides.
    for a, b in zip(jax.tree.leaves(plain[1:]), jax.tree.leaves(other[1:]), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    for a, b in zip(jax.tree.leaves(plain[0]), jax.tree.leaves(other[0]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    assert float(jnp.abs(plain[2].entropy).min()) > 1e-2 and float(plain[2].grad_norm.min()) > 1e-2


def test_as_many_parts_as_fit_a_cache_give_the_same_update(plain, monkeypatch):
    cut = []
    monkeypatch.setattr(loss, "parts_for_a_cache", lambda network, sequences, rows: cut.append((sequences, rows)) or 2)
    other = learnt(dataclasses.replace(LARGE, accumulate=0))
    time, arenas, mechs = random_batch().reset.shape
    assert set(cut) == {(arenas // LARGE.minibatches, time * mechs)}
    for a, b in zip(jax.tree.leaves(plain[1:]), jax.tree.leaves(other[1:]), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_a_distribution_without_noise_of_its_own_draws_it_in_every_part(monkeypatch):
    drawn = []

    def head_entropy(self, key):
        drawn.append(self.mean.shape)
        return self.entropy(jax.random.normal(key, self.mean.shape))[..., None]

    monkeypatch.delattr(SquashedGaussian, "entropy_noise")
    monkeypatch.setattr(SquashedGaussian, "head_entropy", head_entropy)
    time, arenas, mechs = random_batch().reset.shape
    for remat, axes in (
        (False, (time, arenas // 4, mechs)),
        (True, (arenas // 4, mechs)),
    ):  # of a part, or of one decision
        drawn.clear()
        jax.eval_shape(lambda r=remat: learnt(dataclasses.replace(LARGE, accumulate=2, remat=r)))
        assert {shape[:-1] for shape in drawn} == {axes}


def test_dropped_gradient_steps_do_what_skipped_ones_do():
    few = dataclasses.replace(LARGE, target_kl=1e-9)  # the second minibatch shows what the first step did, and stops
    skipped, dropped = (learnt(dataclasses.replace(few, skip=skip)) for skip in (True, False))
    for metrics in (skipped[2], dropped[2]):
        assert metrics.stopped.ravel().tolist() == [0.0, 0.0, 1.0, 1.0]
        assert not metrics.loss[1].any() and metrics.loss[0].all()
    # XLA fuses a step inside a conditional otherwise than one outside: the last bits differ. A step would move them by 1e-3.
    for a, b in zip(jax.tree.leaves(skipped[:2]), jax.tree.leaves(dropped[:2]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_a_gpu_drops_steps_and_a_cpu_skips_them(monkeypatch):
    for widths, skip in (("gpu", False), ("cpu", True)):
        monkeypatch.setenv("ECHELON_LOOP_WIDTHS", widths)
        assert TrainConfig().ppo.skip is skip


def test_a_gpu_computes_a_gradient_at_once_and_a_cpu_in_parts_unless_told(monkeypatch):
    for widths, parts in (("gpu", 1), ("cpu", 0)):
        monkeypatch.setenv("ECHELON_LOOP_WIDTHS", widths)
        assert TrainConfig().ppo.accumulate == parts
        assert TrainConfig(accumulate=4).ppo.accumulate == 4


@pytest.mark.parametrize(
    ("reads_itself", "sequences", "rows", "parts"),
    [
        (False, 16, 640, 4),
        (False, 8, 640, 2),
        (False, 6, 1024, 3),
        (False, 4, 100, 1),
        (False, 7, 4096, 7),
        (True, 16, 640, 1),
        (None, 16, 640, 1),  # a network of one's own that does not say
    ],
)
def test_the_parts_for_a_cache_are_as_small_as_their_rows_allow(reads_itself, sequences, rows, parts):
    network = SimpleNamespace() if reads_itself is None else SimpleNamespace(memory_reads_itself=reads_itself)
    assert parts_for_a_cache(network, sequences, rows) == parts


def test_arenas_that_the_parts_cannot_share_are_refused():
    with pytest.raises(ValueError, match=r"arenas must be a multiple of minibatches times accumulate \(24\), got 64"):
        TrainConfig(minibatches=8, accumulate=3).validate()
    with pytest.raises(ValueError, match=r"minibatches times accumulate times devices \(32\), got 48"):
        TrainConfig(arenas=48, minibatches=8, accumulate=2, devices=2).validate()
