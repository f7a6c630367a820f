"""The shapes and dtypes written in the annotations are the ones that occur, in every function of the compiled program."""

import importlib
import inspect
import pkgutil
import typing
from types import ModuleType

import flax.struct
import jax
import jax.numpy as jnp
import pytest
from beartype import beartype
from helpers.jaxprs import host_calls
from jaxtyping import Array, Float32, jaxtyped

import echelon_jax
from echelon_jax.agents.scripted import Scripted
from echelon_jax.config import EnvConfig
from echelon_jax.env.autoreset import AutoReset
from echelon_jax.env.environment import Echelon
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.trainer import make_train
from echelon_jax.worldgen.bank import generate_worlds

PACKAGES = ("sim", "env", "env.original", "env.modern", "agents", "policies", "training")
GAMES = {
    "original": EnvConfig.original(size_x=40, size_y=40),
    "revised": EnvConfig(size_x=40, size_y=40),
    "revised, partial": EnvConfig(size_x=40, size_y=40, observation_mode="partial"),
}


def modules() -> list[ModuleType]:
    found = []
    for package in PACKAGES:
        home = importlib.import_module(f"echelon_jax.{package}")
        inside = [m.name for m in pkgutil.iter_modules(home.__path__) if not m.ispkg]
        found += [importlib.import_module(f"{home.__name__}.{name}") for name in inside]
    return found


@pytest.fixture
def checked_functions(monkeypatch: pytest.MonkeyPatch) -> int:
    """Every function of the packages checks its annotations at each call, while the fixture lives."""
    everything = modules()
    checked = {}
    for module in everything:
        for function in vars(module).values():
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                checked[function] = jaxtyped(typechecker=beartype)(function)
    for module in everything:
        for name, value in list(vars(module).items()):
            if inspect.isfunction(value) and value in checked:
                monkeypatch.setattr(module, name, checked[value])
    return len(checked)


def check_struct(value: object, where: str) -> int:
    """Check the fields of a struct against their annotations, with one meaning per axis name; returns how many were checked."""
    count = 0
    hints = typing.get_type_hints(type(value), include_extras=True)
    for name, hint in hints.items():
        field = getattr(value, name)
        if isinstance(field, flax.struct.PyTreeNode):
            count += check_struct(field, f"{where}.{name}")
        elif hasattr(hint, "dim_str"):
            assert isinstance(field, hint), f"{where}.{name} is {field.dtype}{list(field.shape)}, annotated {hint}"
            count += 1
    return count


@pytest.mark.parametrize("game", GAMES)
def test_every_function_of_the_training_program_keeps_its_annotations(checked_functions: int, game: str) -> None:
    assert checked_functions > 100
    config = GAMES[game]
    env = Echelon(config)
    params = env.params(env.make_bank(generate_worlds(config, range(2))))
    small = TrainConfig(arenas=4, rollout_steps=3, updates=1, epochs=1, minibatches=2, hidden=8, lstm=8)
    from echelon_jax.training import trainer

    train = trainer.make_train(AutoReset(env), small)
    state = jax.eval_shape(train.init, jax.random.key(0), params)
    traced, (after, _) = jax.make_jaxpr(train.update, return_shape=True)(state, params)
    assert host_calls(traced.jaxpr) == []
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(lambda x: (x.shape, x.dtype), state)


def test_a_call_of_the_host_inside_a_loop_is_found() -> None:
    def asks(x: jax.Array) -> jax.Array:
        jax.debug.print("{}", x)
        return x

    looped = jax.make_jaxpr(lambda x: jax.lax.scan(lambda c, _: (asks(c), None), x, None, 3)[0])(jnp.float32(0))
    assert len(host_calls(looped.jaxpr)) == 1


def test_a_wrong_shape_would_be_noticed(checked_functions: int) -> None:
    from echelon_jax.sim import geometry

    with pytest.raises(Exception, match="Type-check error"):
        geometry.length3(jnp.zeros((4, 2)))


@pytest.mark.parametrize("game", GAMES)
def test_every_field_of_state_and_step_has_its_annotated_shape_and_type(game: str) -> None:
    config = GAMES[game]
    env = Echelon(config)
    params = env.params(env.make_bank(generate_worlds(config, range(2))))
    state, step = env.reset_batch(jax.random.split(jax.random.key(0), 3), params)
    with jaxtyped("context"):
        assert check_struct(state, "state") > 70
    with jaxtyped("context"):
        assert check_struct(step, "step") > 15
    with jaxtyped("context"):
        assert check_struct(params, "params") > 40
    with jaxtyped("context"):
        assert check_struct(Scripted(config).init(params, state), "scripted") >= 5


def test_the_check_of_fields_notices_a_wrong_dtype() -> None:
    class Wrong(flax.struct.PyTreeNode):
        value: Float32[Array, " arenas"]

    with pytest.raises(AssertionError, match="annotated"):
        check_struct(Wrong(jnp.zeros(3, jnp.int32)), "wrong")


def test_the_package_names_what_users_import() -> None:
    for name in echelon_jax.__all__:
        assert getattr(echelon_jax, name) is not None
    assert make_train is not None
