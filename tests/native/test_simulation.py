"""The native simulation plays the game of the JAX code and of the plain reference, whatever batch an arena is in."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.fuzz_step import CONFIG
from helpers.trees import disagreeing, unequal

from echelon_jax import compiling
from echelon_jax.config import SWITCHES, EnvConfig
from echelon_jax.env.actions import sanitise
from echelon_jax.env.environment import Echelon
from echelon_jax.env.interfaces import action_layout, actions_of
from echelon_jax.native.arguments import number_names
from echelon_jax.native.build import CannotBuild, compiler
from echelon_jax.native.call import simulate_natively
from echelon_jax.parity.exchange import stack
from echelon_jax.parity.fuzzing import fuzz
from echelon_jax.parity.fuzzing.cases import make_case
from echelon_jax.rules.weapons import LASER
from echelon_jax.sim.rules import sim_rules
from echelon_jax.sim.step import simulate

pytestmark = pytest.mark.optimised

try:
    compiler("cpu")
except CannotBuild as error:
    pytest.skip(str(error), allow_module_level=True)

LAST_BITS = 1e-4  # of positions up to 40
SEED = 7_000_000  # of cases that no other test has
REVISED = EnvConfig()
TWO_PACKS = EnvConfig.original(size_x=60, size_y=60, num_packs=2)


@cache
def inputs(config: EnvConfig, count: int, seed: int = SEED):
    """States with deaths, blasts, shots and clouds, the commands of their actions, and draws."""
    case = stack([make_case(config, seed + i) for i in range(count)])
    clean, _ = sanitise(config, action_layout(config), jnp.asarray(case.actions))
    decision = actions_of(config).decide(config, case.state, clean)
    return case.state.sim.replace(mechs=decision.mechs), decision.commands, jax.tree.map(jnp.asarray, case.noise)


@cache
def native(config: EnvConfig):
    return jax.jit(lambda rules, *given: simulate_natively(config, rules, *given))


def rows(tree, arenas):
    return jax.tree.map(lambda leaf: leaf[np.array(arenas)], tree)


@pytest.mark.parametrize("config", [CONFIG, EnvConfig(observation_mode="partial")], ids=["original", "revised"])
def test_random_steps_agree_with_the_plain_reference(config):
    step = fuzz.stepper(config, fuzz.compile_step(config, kernels="native"))
    result = fuzz.run(config, range(SEED, SEED + 400), step)
    assert result.unexplained == []
    assert result.events["kill"].rows > 0 and result.events["explosion"].rows > 0


@pytest.mark.parametrize("config", [CONFIG, REVISED, TWO_PACKS], ids=["original", "revised", "two packs"])
def test_an_arena_gives_the_same_bits_alone_and_in_a_batch_of_many_threads(config):
    many = inputs(config, 40)
    together = jax.device_get(native(config)(sim_rules(config), *many))
    for arena in (0, 17, 39):
        alone = native(config)(sim_rules(config), *rows(many, [arena]))
        assert unequal(jax.device_get(alone), rows(together, [arena])) == []


def test_under_vmap_batches_are_played_side_by_side():
    many, rules = inputs(CONFIG, 6), sim_rules(CONFIG)
    split = jax.tree.map(lambda leaf: leaf.reshape(3, 2, *leaf.shape[1:]), many)
    mapped = jax.vmap(lambda *given: native(CONFIG)(rules, *given))(*split)
    joined = jax.tree.map(lambda leaf: leaf.reshape(6, *leaf.shape[2:]), mapped)
    assert unequal(jax.device_get(joined), jax.device_get(native(CONFIG)(rules, *many))) == []


def test_under_vmap_each_batch_keeps_its_own_rules():
    some, rules = inputs(CONFIG, 8), sim_rules(CONFIG)
    strong = rules.replace(damage=rules.damage.at[LASER].mul(2.0))
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), rules, strong)
    mapped = jax.vmap(lambda r: native(CONFIG)(r, *some))(both)
    for number, own in enumerate((rules, strong)):
        assert unequal(jax.device_get(rows(mapped, number)), jax.device_get(native(CONFIG)(own, *some))) == []
    assert (mapped.tally.laser_hits[0] > 0).any()
    assert (mapped.tally.took_damage[0] != mapped.tally.took_damage[1]).any()


def test_what_is_handed_over_stays_as_it_was():
    """The call writes in place, into a copy unless the caller gave its arrays away."""
    state, commands, noise = inputs(REVISED, 3)
    before = jax.tree.map(np.array, jax.device_get(state))
    native(REVISED)(sim_rules(REVISED), state, commands, noise)
    assert unequal(jax.device_get(state), before) == []


def test_a_resting_arena_stays_as_it_is_and_the_others_play_on():
    given, rules = inputs(REVISED, 40), sim_rules(REVISED)
    resting = np.arange(40) % 3 == 1
    some = jax.device_get(native(REVISED)(rules, *given, jnp.asarray(resting)))
    everyone = jax.device_get(native(REVISED)(rules, *given))
    still, playing = np.flatnonzero(resting), np.flatnonzero(~resting)
    assert unequal(rows(some, still), rows(jax.device_get(given[0]), still)) == []
    assert unequal(rows(some, playing), rows(everyone, playing)) == []
    assert (rows(everyone, still).tick != rows(some, still).tick).all()


@pytest.mark.parametrize("first", [0, 1])
def test_every_other_switch_alone_gives_the_game_of_the_jax_code(first):
    """The presets have all switches on or all off; here each is on while its neighbours are off, and the other way round."""
    switches = [name for name in SWITCHES if name in number_names()]
    config = EnvConfig.original(**dict.fromkeys(switches[first::2], True))
    given = inputs(config, 64)
    ours = native(config)(sim_rules(config), *given)
    options = compiling.for_short_runs()
    theirs = jax.jit(lambda rules, *given: simulate(config, rules, *given), compiler_options=options)
    assert disagreeing(jax.device_get(ours), jax.device_get(theirs(sim_rules(config), *given)), LAST_BITS) == []
    assert len(switches) == 9


def test_an_environment_says_which_kernels_it_wants():
    assert Echelon(CONFIG, kernels="native") != Echelon(CONFIG)
    with pytest.raises(ValueError, match="kernels must be xla or native, got 'fast'"):
        dataclasses.replace(Echelon(CONFIG), kernels="fast")
