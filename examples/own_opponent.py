"""An opponent of one's own: every mech runs to the zone and fires all the way. It plays paired games against random actions.

    python examples/own_opponent.py

The same opponent on the command line, from a directory in which this file lies:

    echelon train --preset smoke --opponent own_opponent:Rusher
"""

from __future__ import annotations

import argparse
import dataclasses
import math

import jax
import jax.numpy as jnp

from echelon_jax import Echelon, EnvConfig, generate_worlds
from echelon_jax.agents.base import AgentParams
from echelon_jax.agents.random import RandomAgent
from echelon_jax.env.interfaces import action_layout
from echelon_jax.env.state import EnvParams, EnvState
from echelon_jax.evaluation.games import play, summarize_games
from echelon_jax.evaluation.players import AgentPlayer


@dataclasses.dataclass(frozen=True)
class Rusher:
    """Turns to the zone's centre, drives there, and holds every trigger. It has no memory."""

    config: EnvConfig

    def init(self, params: EnvParams, state: EnvState) -> tuple[()]:
        """Return the empty memory."""
        return ()

    def act(
        self, params: EnvParams, agent_params: AgentParams, agent_state: tuple[()], state: EnvState, keys: jax.Array
    ) -> tuple[tuple[()], jax.Array]:
        """Return the empty memory and the actions of all mechs; the caller keeps those of the side that is played."""
        layout, mechs = action_layout(self.config), state.sim.mechs
        to_zone = state.arena_map.zone[:, None, :2] - mechs.position[..., :2]
        error = jnp.arctan2(to_zone[..., 1], to_zone[..., 0]) - mechs.yaw
        error = jnp.mod(error + math.pi, 2 * math.pi) - math.pi
        chosen = {
            "forward": jnp.where(jnp.linalg.norm(to_zone, axis=-1) > 2.0, jnp.cos(error), 0.0),
            "yaw_rate": jnp.clip(2.0 * error, -1.0, 1.0),
            **{name: jnp.ones_like(error) for name in ("primary", "secondary", "tertiary")},
        }
        actions = jnp.zeros((*error.shape, layout.size), jnp.float32)
        for name, value in chosen.items():
            actions = actions.at[..., layout[name].offset].set(value)
        return agent_state, actions

    def reset_where(self, agent_state: tuple[()], fresh_state: EnvState, mask: jax.Array) -> tuple[()]:
        """Return the empty memory."""
        return agent_state


def main() -> None:
    """Play games from both sides of the same maps and print the result."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--maps", type=int, default=2, help="two games are played on each")
    parser.add_argument("--seconds", type=float, default=20.0, help="time limit of a game")
    flags = parser.parse_args()

    config = EnvConfig.original(size_x=28, size_y=28, max_episode_seconds=flags.seconds)
    worlds = generate_worlds(config, range(flags.maps))
    numbers = AgentParams(fire_probability=jnp.float32(1.0))  # an agent ignores what it does not use
    rusher, opponent = AgentPlayer(Rusher(config)), AgentPlayer(RandomAgent(config))
    games = play(Echelon(config), worlds, (rusher, numbers), (opponent, numbers), jax.random.key(0))
    result = summarize_games(games)
    print(f"games {result['games']}: won {result['wins']}, drawn {result['draws']}, lost {result['losses']}")
    print(f"zone seconds per game: own {result['zone_seconds_own']:.1f}, other {result['zone_seconds_other']:.1f}")


if __name__ == "__main__":
    main()
