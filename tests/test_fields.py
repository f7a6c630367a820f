"""Configuration fields: written once, read by flags, checks and pages; scalars of other libraries become plain values."""

import dataclasses
import enum
import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.fields import MAX_SEED, MAX_WHOLE, allowed, check_seed, help_texts
from echelon_jax.markdown import row
from echelon_jax.training.config import TrainConfig


class Rules(enum.Enum):
    OBSERVATION = "original"
    PACKS = 2


class Size(enum.IntEnum):
    SMALL = 24


SCALARS = {
    "numpy": (np.int64(3), np.float32(0.5), np.bool_(False), np.str_("random")),
    "numpy arrays without axes": (np.array(3), np.array(0.5), np.array(False), np.str_("random")),
    "jax": (jnp.int32(3), jnp.float32(0.5), jnp.bool_(False), "random"),
}


@pytest.mark.parametrize("library", SCALARS)
def test_scalars_of_other_libraries_are_stored_as_plain_values(library: str) -> None:
    seed, gamma, anneal, opponent = SCALARS[library]
    config = TrainConfig(seed=seed, gamma=gamma, anneal=anneal, opponent=opponent).validate()
    assert config == TrainConfig(seed=3, gamma=0.5, anneal=False, opponent="random")
    stored = config.seed, config.gamma, config.anneal, config.opponent
    assert [type(value) for value in stored] == [int, float, bool, str]


def test_scalars_of_the_games_configuration_are_plain_too_and_make_the_same_configuration() -> None:
    config = EnvConfig(size_x=Size.SMALL, size_y=np.int32(40), num_packs=Rules.PACKS, observation=Rules.OBSERVATION)
    assert config == EnvConfig(size_x=24, size_y=40, num_packs=2, observation="original")
    assert hash(config) == hash(EnvConfig(size_x=24, size_y=40, num_packs=2, observation="original"))
    assert [type(value) for value in (config.size_x, config.size_y, config.num_packs)] == [int] * 3


@pytest.mark.parametrize("kind", [TrainConfig, EnvConfig])
def test_a_value_outside_the_bounds_of_its_field_is_one_sentence_that_names_both(kind: type) -> None:
    for name, may_be in allowed(kind).items():
        wrong = [value for value in (may_be.low, may_be.high) if value is not None]
        wrong = [wrong[0] - 1, wrong[-1] + 1] if len(wrong) == 2 else [may_be.above] if may_be.above is not None else []
        for value in [*wrong, object(), float("nan")]:
            with pytest.raises(ValueError, match=f"^{name} must be .*, got ") as refused:
                dataclasses.replace(kind(), **{name: value}).validate() if kind is TrainConfig else kind(
                    **{name: value}
                )
            if not may_be.choices:
                assert may_be.words() in str(refused.value)


@pytest.mark.parametrize("value", [True, "3", 3.0, None])
def test_a_whole_number_is_no_bool_text_or_fraction(value: object) -> None:
    with pytest.raises(ValueError, match=f"arenas must be a whole number from 2 to {MAX_WHOLE}"):
        TrainConfig(arenas=value).validate()  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [-1, 2**32, 2**63, 10**30, 1.5, True, "1"])
def test_a_seed_is_what_a_key_can_hold(seed: object) -> None:
    with pytest.raises(ValueError, match=f"seed must be a whole number from 0 to {MAX_SEED}"):
        check_seed(seed)
    with pytest.raises(ValueError, match=f"seed must be a whole number from 0 to {MAX_SEED}"):
        TrainConfig(seed=seed).validate()  # type: ignore[arg-type]


def test_the_largest_seed_is_allowed() -> None:
    assert check_seed(np.uint32(MAX_SEED)) == TrainConfig(seed=MAX_SEED).validate().seed == MAX_SEED


def test_the_class_documents_every_field_by_its_one_text() -> None:
    for kind in (TrainConfig, EnvConfig):
        for name, text in help_texts(kind).items():
            assert f"    {name}: {text}\n" in (kind.__doc__ or "")


def test_a_bar_inside_a_cell_stays_inside() -> None:
    assert row("a|b", "two\nlines", 3) == "| a\\|b | two lines | 3 |"


@pytest.mark.parametrize("flags", [[], ["-O"], ["-OO"]])
def test_commands_start_where_python_drops_docstrings(flags: list[str]) -> None:
    code = "from echelon_jax.cli.main import main; main(['train', '--help'])"
    shown = subprocess.run(
        [sys.executable, *flags, "-c", code], capture_output=True, text=True, env={**os.environ, "COLUMNS": "160"}
    )
    assert shown.returncode == 0, shown.stderr
    assert "Adam learning rate" in shown.stdout
