"""The observation of docs/extending.md, named by its import path: it is observed, laid out and read by both networks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.env_scenes import Scenes

from echelon_jax.cli.main import main
from echelon_jax.config import EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.env.interfaces import observation_layout, observe
from echelon_jax.policies.registry import make_network
from echelon_jax.sim.rules import sim_rules
from echelon_jax.training.config import TrainConfig

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The page's program as a module that Python can import."""
    [code] = [text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "WithHeading" in text]
    folder = tmp_path_factory.mktemp("modules")
    more = "\nONE = WithHeading()\n\nclass Wanting(WithHeading):\n    def __init__(self, needed): pass\n\nNONE = 3\n"
    (folder / "heading_of_the_page.py").write_text(code + more)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield "heading_of_the_page"


def game(module: str, name: str = "WithHeading") -> EnvConfig:
    return EnvConfig.original(size_x=40, size_y=40, reward="modern", observation=f"{module}:{name}")


@pytest.mark.parametrize("name", ["WithHeading", "ONE"])
def test_a_class_and_an_object_are_both_found(module: str, name: str) -> None:
    table = observation_layout(game(module, name))
    assert table.size == observation_layout(EnvConfig.original()).size + 2
    assert table["own/heading_cosine"].offset == table.size - 1


def test_the_living_see_where_they_face_and_the_dead_see_zeros(module: str) -> None:
    config = game(module)
    made = Scenes(EnvConfig.original(size_x=40, size_y=40), 1)
    made.put(0, "blue_0", 10.0, 10.0, yaw=0.5)
    made.change(0, "red_1", alive=False, hp=0.0)
    state = made.ready()
    seen = jax.jit(lambda state: observe(config, sim_rules(config), state).observation)(state)[0]
    yaw = state.sim.mechs.yaw[0]
    facing = np.where(state.sim.mechs.alive[0][:, None], jnp.stack([jnp.sin(yaw), jnp.cos(yaw)], -1), 0.0)
    np.testing.assert_allclose(seen[:, -2:], facing, atol=1e-6)
    assert facing[0, 0] == pytest.approx(np.sin(0.5)) and not np.asarray(seen)[made.ids.index("red_1")].any()


@pytest.mark.parametrize("network", ["original", "modern"])
def test_both_networks_read_it(module: str, network: str) -> None:
    config = game(module)
    made = make_network(TrainConfig.smoke(network=network), config)
    assert made.features.size == observation_layout(config).size == Echelon(config).observation_space().shape[-1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Wanting", "observation must name an object or a class that is made without arguments"),
        ("NONE", "observation must name an ObservationInterface"),
        ("Nowhere", "observation must name an object of heading_of_the_page"),
    ],
)
def test_what_is_no_observation_is_refused_in_a_sentence(
    module: str, name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["train", "--preset", "smoke", "--rules", "original", "--reward", "modern", "--dry-run"]
    assert main([*flags, "--observation", f"{module}:{name}"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
