"""Networks by name: those of this package, and a user's own by its import path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from echelon_jax.config import EnvConfig
from echelon_jax.env.interfaces import action_layout, actions_of, observation_of
from echelon_jax.env.layout import CONTACT_GROUP
from echelon_jax.jax_setup import require_float32
from echelon_jax.plugins import is_import_path, load
from echelon_jax.policies.features import features_of
from echelon_jax.policies.modern_network import ModernNetwork
from echelon_jax.policies.network import Network
from echelon_jax.policies.original_network import OriginalNetwork
from echelon_jax.policies.structure import structure_of


@runtime_checkable
class NetworkSettings(Protocol):
    """The fields of a training configuration that a network is built from; `TrainConfig` has them all."""

    @property
    def network(self) -> str:
        """Name or import path."""
        ...

    @property
    def hidden(self) -> int:
        """Width of the encoder."""
        ...

    @property
    def lstm(self) -> int:
        """Width of the memory."""
        ...

    @property
    def forget_bias(self) -> float:
        """Initial bias of the gate that says what the memory keeps."""
        ...

    @property
    def initial_log_std(self) -> float:
        """Initial log of the spread of continuous actions."""
        ...

    @property
    def layer_norm(self) -> bool:
        """Whether LayerNorm stands around the memory."""
        ...

    @property
    def team_critic(self) -> bool:
        """Whether the critic sees the memories of the whole team."""
        ...

    @property
    def attention(self) -> bool:
        """Whether slots are pooled by attention."""
        ...

    @property
    def memory(self) -> str:
        """Kind of memory, a name in policies/memories.py."""
        ...

    @property
    def class_networks(self) -> bool:
        """Whether each mech class has parameters of its own."""
        ...


def _original(settings: NetworkSettings, env_config: EnvConfig) -> Network:
    return OriginalNetwork(
        features=features_of(env_config),
        action_size=action_layout(env_config).size,
        hidden=settings.hidden,
        lstm=settings.lstm,
        forget_bias=settings.forget_bias,
        initial_log_std=settings.initial_log_std,
    )


def _modern(settings: NetworkSettings, env_config: EnvConfig) -> Network:
    shows_contacts = observation_of(env_config).reading.target_slots == CONTACT_GROUP
    if shows_contacts != actions_of(env_config).points_at_contacts:
        raise ValueError(
            "network must be original where actions choose among other slots than the observation shows, got modern with "
            f"{env_config.observation} observation and {env_config.actions} actions"
        )
    return ModernNetwork(
        features=features_of(env_config, factored=True),
        structure=structure_of(env_config),
        hidden=settings.hidden,
        lstm=settings.lstm,
        forget_bias=settings.forget_bias,
        initial_log_std=settings.initial_log_std,
        layer_norm=settings.layer_norm,
        team_critic=settings.team_critic,
        attention=settings.attention,
        class_networks=settings.class_networks,
        memory=settings.memory,
    )


NetworkFactory = Callable[[NetworkSettings, EnvConfig], Network]
NETWORKS: dict[str, NetworkFactory] = {"modern": _modern, "original": _original}


def check_network_name(name: object) -> None:
    """Refuse what is neither a network of this package nor an import path.

    Raises:
        ValueError: naming the allowed values.
    """
    if not isinstance(name, str) or (name not in NETWORKS and not is_import_path(name)):
        allowed = ", ".join(NETWORKS)
        raise ValueError(f"network must be one of {allowed} or an import path package.module:Name, got {name!r}")


def make_network(settings: NetworkSettings, env_config: EnvConfig) -> Network:
    """Return the network that `settings.network` names, for the game of `env_config`.

    An import path names a callable `(settings, env_config) -> Network`; examples/own_network.py shows one.

    Raises:
        ValueError: an unknown name, 64-bit JAX, or a network that does not fit the game: the modern network needs observation
            and actions of one kind, because both must number their targets alike.
    """
    check_network_name(settings.network)
    require_float32()
    if settings.network in NETWORKS:
        return NETWORKS[settings.network](settings, env_config)
    factory = load(settings.network, "network")
    if not callable(factory):
        raise ValueError(f"network must name a class or function, and {settings.network} is a {type(factory).__name__}")
    return check_network(factory(settings, env_config), settings.network)


def given_network(given: Network | NetworkFactory | None, settings: NetworkSettings, env_config: EnvConfig) -> Network:
    """Return a network that a caller hands over: itself, what a factory makes, or without one that of the configuration.

    Raises:
        ValueError: it is no network, or `make_network` refuses the configured one.
    """
    if given is None:
        return make_network(settings, env_config)
    require_float32()
    if isinstance(given, Network) and not isinstance(given, type):
        return check_network(given, type(given).__name__)
    if not callable(given):
        raise ValueError(f"network must be a Network or a callable that makes one, got {type(given).__name__}")
    return check_network(given(settings, env_config), getattr(given, "__name__", repr(given)))


def check_network(network: object, name: str) -> Network:
    """Return a user's network if it has all that a rollout and the update call.

    Raises:
        ValueError: something is missing, or it cannot be hashed, so that no program could be compiled for it.
    """
    if not isinstance(network, Network):
        lacks = [member for member in _members() if not hasattr(network, member)]
        raise ValueError(f"network must be a Network, and what {name} makes lacks {', '.join(lacks)}")
    try:
        hash(network)
    except TypeError as error:
        raise ValueError(f"network must be hashable, such as a frozen dataclass, and {name} is not: {error}") from error
    return network


def _members() -> list[str]:
    """The names that `Network` asks for."""
    return sorted(name for name in vars(Network) if not name.startswith("_"))
