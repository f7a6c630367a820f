"""Ready-made environments by name: `echelon_jax.make("Echelon-v1")`, `echelon_jax.make("5v5-40")`."""

from __future__ import annotations

from typing import Any, Literal, overload

from echelon_jax.config import RULE_SETS, EnvConfig
from echelon_jax.env.autoreset import AutoReset
from echelon_jax.env.environment import Echelon
from echelon_jax.env.reward_terms import terms_of
from echelon_jax.env.state import EnvParams
from echelon_jax.fields import Allowed, check_seed
from echelon_jax.versions import VERSIONS
from echelon_jax.worldgen.bank import bank_contents, generate_worlds

# Packs of five mechs a side, and the edge of the square map in voxels.
ENVIRONMENTS = {
    "5v5-28": (1, 28),
    "5v5-40": (1, 40),
    "5v5-60": (1, 60),
    "10v10-60": (2, 60),
    "10v10-100": (2, 100),
    "15v15-100": (3, 100),
}


def environment_names() -> tuple[str, ...]:
    """Return every name that `make` knows: the versions, then the sizes."""
    return (*VERSIONS, *ENVIRONMENTS)


def environment_config(name: str, rules: str | None = None, **overrides: Any) -> EnvConfig:
    """Return the configuration of a name; no world is made and nothing is compiled. Arguments as for `make`.

    Raises:
        ValueError: an unknown name, rule set or field, or a value that is not allowed.
    """
    if name not in environment_names():
        raise ValueError(f"name must be one of {', '.join(environment_names())}, got {name!r}")
    fixed = VERSIONS[name].rules if name in VERSIONS else None
    if fixed is not None and rules not in (None, fixed):
        raise ValueError(f"rules must be {fixed} for {name}, or left out, got {rules!r}")
    rules = fixed or rules or "revised"
    if rules not in RULE_SETS:
        raise ValueError(f"rules must be one of {', '.join(RULE_SETS)}, got {rules!r}")
    unknown = sorted(set(overrides) - set(EnvConfig.__dataclass_fields__))
    if unknown:
        raise ValueError(f"overrides must be fields of EnvConfig, got {', '.join(unknown)}")
    packs, size = ENVIRONMENTS[VERSIONS[name].size if name in VERSIONS else name]
    sizes = {"num_packs": packs, "size_x": size, "size_y": size}
    return (EnvConfig.original if rules == "original" else EnvConfig.revised)(**{**sizes, **overrides})


@overload
def make(
    name: str,
    *,
    rules: str | None = ...,
    worlds: int = ...,
    seed: int = ...,
    auto_reset: Literal[True] = ...,
    **overrides: Any,
) -> tuple[AutoReset, EnvParams]: ...


@overload
def make(
    name: str,
    *,
    rules: str | None = ...,
    worlds: int = ...,
    seed: int = ...,
    auto_reset: Literal[False],
    **overrides: Any,
) -> tuple[Echelon, EnvParams]: ...


def make(
    name: str,
    *,
    rules: str | None = None,
    worlds: int = 16,
    seed: int = 0,
    auto_reset: bool = True,
    **overrides: Any,
) -> tuple[AutoReset | Echelon, EnvParams]:
    """Return an environment and its parameters, worlds included, ready to `reset`.

    Both kinds of environment have `reset(key, params)` and `step(key, state, actions, params)` for one arena, and
    `reset_batch(keys, params)` and `step_batch(keys, state, actions, params)` for many side by side.

    Args:
        name: one of ENVIRONMENTS, mechs a side and the edge of the map, or a version: `Echelon-v1` or `Echelon-original`, whose
            rules are fixed (docs/versions.md).
        rules: `revised`, the default game, or `original`, the original's to the letter.
        worlds: maps that are generated; a reset draws one of them.
        seed: of the maps; those of evaluation games are never among them.
        auto_reset: a step that ends an episode begins the next one, as in gymnax (`AutoReset`, the default); without it the
            arena stays as it ended (`Echelon`).
        overrides: fields of EnvConfig, such as `observation_mode="partial"` or `reward_terms`.

    Raises:
        ValueError: an unknown name, rule set or field, or a value that is not allowed.

    Example:
        >>> env, params = make("5v5-28", worlds=4)
        >>> state, step = env.reset_batch(jax.random.split(jax.random.key(0), 8), params)
    """
    config = environment_config(name, rules, **overrides)
    allowed = Allowed(int, low=1)
    if not allowed.holds(worlds):
        raise ValueError(f"worlds must be {allowed.words()}, got {worlds!r}")
    terms_of(config)  # a term that cannot be found is said before worlds are made
    env = Echelon(config)
    maps = generate_worlds(config, bank_contents(check_seed(seed), 1, worlds, 0))
    params = env.params(env.make_bank(maps))
    return (AutoReset(env) if auto_reset else env), params
