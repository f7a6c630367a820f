"""A state in a notebook: what it shows is what the arrays hold."""

import re

import jax
import numpy as np
import pytest
from helpers.env_scenes import Scenes

from echelon_jax.config import EnvConfig
from echelon_jax.env.html import MOST_ARENAS

CONFIG = EnvConfig.original()


@pytest.fixture(scope="module")
def state():
    made = Scenes(CONFIG, MOST_ARENAS + 1)
    made.change(0, "red_2", alive=False)
    made.change(0, "blue_0", hp=123.0)
    made.put(0, "blue_4", 30.0, 31.0)
    return jax.tree.map(np.asarray, made.ready())


def rows(html):
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]


def test_a_batch_shows_its_first_arenas_and_the_mechs_of_the_first(state):
    shown = state._repr_html_()
    arenas = [row for row in rows(shown) if len(row) == 7 and row[-1] in ("yes", "no")]
    assert [row[0] for row in arenas] == [str(i) for i in range(MOST_ARENAS)]
    assert arenas[0][4:6] == ["5", "4"] and arenas[1][4:6] == ["5", "5"]
    mechs = {tuple(row[:3]): row[3:] for row in rows(shown) if len(row) == 7 and row[-1] not in ("yes", "no")}
    assert len(mechs) == CONFIG.num_mechs
    assert mechs["0", "blue", "heavy"][0] == "123 of 200"
    assert mechs["7", "red", "medium"][-1] == "dead"
    assert mechs["4", "blue", "scout"][2].startswith("30.0, 31.0")
    assert shown.count("<circle") == CONFIG.num_mechs + 1 and "<script" not in shown
    assert f'cx="30.0" cy="{CONFIG.size_y - 31:.1f}"' in shown, "y points upwards"


def test_one_arena_without_a_batch_shows_itself_in_the_same_way(state):
    one = jax.tree.map(lambda x: x[0], state)._repr_html_()
    batch = jax.tree.map(lambda x: x[:1], state)._repr_html_()
    assert one == batch
