"""A torch export comes back as the policy that it was made from, to the bit where nothing is pooled."""

import jax
import numpy as np
import pytest

pytest.importorskip("torch")

from helpers.export_policies import random_modern, random_policy

from echelon_jax.export.torch_files import write_torch
from echelon_jax.export.torch_import import import_torch
from echelon_jax.export.weights import ExportError, normaliser_of
from echelon_jax.policies.distributions import LOG_STD_RANGE
from echelon_jax.runs.checkpoint import Policy


@pytest.mark.parametrize("make", [random_policy, random_modern, lambda: random_modern(3, class_networks=True)])
def test_a_torch_export_comes_back(tmp_path, make) -> None:
    policy: Policy = make()
    write_torch(policy, tmp_path / "policy.safetensors")
    back = import_torch(tmp_path / "policy.safetensors")
    assert back.network == policy.network
    assert (back.config, back.env_config, back.update) == (policy.config, policy.env_config, policy.update)
    jax.tree.map(np.testing.assert_array_equal, clipped(back), clipped(policy))
    ours, theirs = (normaliser_of(p.observation_moments, p.network.features, None) for p in (policy, back))
    for name, value in ours.items():
        np.testing.assert_allclose(theirs[name], value, rtol=1e-5, atol=1e-6)


def clipped(policy: Policy):
    """The original network's export holds log-stds as they are used, within their range."""
    params = dict(policy.params)
    if "log_std" in params:
        params["log_std"] = np.clip(params["log_std"], *LOG_STD_RANGE)
    return params


def test_a_file_without_its_card_is_refused(tmp_path) -> None:
    write_torch(random_modern(), tmp_path / "policy.safetensors")
    (tmp_path / "policy.json").unlink()
    with pytest.raises(ExportError, match="no card"):
        import_torch(tmp_path / "policy.safetensors")
