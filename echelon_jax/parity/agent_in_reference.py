"""Any scripted opponent in the plain reference: the JAX function, shown one arena's numbers, for one mech or for all."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from echelon_jax.agents.registry import Made
from echelon_jax.config import EnvConfig
from echelon_jax.reference.environment import Arena
from echelon_jax.rules.materials import COLLIDES, OPAQUE
from echelon_jax.sim.rules import sim_rules
from echelon_jax.worldgen.bank import column_words

# Timers of the reference in seconds, by their names as whole substeps in the state of the simulator.
_TIMERS = {
    "painted": "painted_remaining",
    "fallen": "fallen_time",
    "ams_cooldown": "ams_cooldown",
    "laser_cooldown": "laser_cooldown",
    "tube_cooldown": "missile_cooldown",
    "kinetic_cooldown": "kinetic_cooldown",
    "painter_cooldown": "painter_cooldown",
}


class AgentInReference:
    """An agent of the registry that plays in a reference arena.

    Example:
        >>> opponent = AgentInReference(make_agent("scripted:hard", config), config)
        >>> opponent.reset(env.arena, seed=0)
        >>> actions[5:] = opponent.act(env.arena)[5:]
    """

    def __init__(self, made: Made, config: EnvConfig) -> None:
        self.config = config
        rules = SimpleNamespace(rules=sim_rules(config))

        def view(arrays: dict[str, Any]) -> Any:
            """The part of an EnvState that agents read."""
            sim = SimpleNamespace(mechs=SimpleNamespace(**arrays["mechs"]), grid=SimpleNamespace(**arrays["grid"]))
            return SimpleNamespace(
                sim=sim, arena_map=SimpleNamespace(zone=arrays["zone"]), contact_slots=arrays["contact_slots"]
            )

        def act(memory: Any, arrays: dict[str, Any], key: Any) -> Any:
            return made.agent.act(rules, made.params, memory, view(arrays), key[None])  # type: ignore[arg-type]

        self._begin = jax.jit(lambda arrays: made.agent.init(rules, view(arrays)))  # type: ignore[arg-type]
        self._act = jax.jit(act)
        self._memory: Any = None
        self._key: Any = None
        self._decisions = 0

    def reset(self, arena: Arena, seed: int) -> None:
        """Forget the last game; `seed` is that of every draw."""
        self._memory, self._key, self._decisions = self._begin(self._arrays(arena)), jax.random.key(seed), 0

    def act(self, arena: Arena) -> np.ndarray:
        """Return actions [mechs, actions] for everybody; call it once per decision step, and take the rows that you need."""
        key = jax.random.fold_in(self._key, self._decisions)
        self._decisions += 1
        self._memory, actions = self._act(self._memory, self._arrays(arena), key)
        return np.asarray(actions[0])

    def _arrays(self, arena: Arena) -> dict[str, Any]:
        """What agents read, with a leading axis of one arena; numpy."""
        mechs, dt = arena.battle.mechs, self.config.dt
        columns: dict[str, np.ndarray] = {
            "position": np.array([m.pos for m in mechs], np.float32),
            "yaw": np.array([m.yaw for m in mechs], np.float32),
            "alive": np.array([m.alive for m in mechs]),
            "hp": np.array([m.hp for m in mechs], np.float32),
            "heat": np.array([m.heat for m in mechs], np.float32),
            "last_painter": np.array([-1 if m.last_painter is None else m.last_painter for m in mechs], np.int32),
        }
        for name, theirs in _TIMERS.items():
            # Rounded before the ceiling: what float64 leaves of a timer that has run out is no substep.
            substeps = [math.ceil(round(getattr(m, theirs) / dt, 6)) for m in mechs]
            columns[name] = np.array(substeps, np.int32)
        material = arena.battle.world.material[None]
        return {
            "mechs": {name: column[None] for name, column in columns.items()},
            "grid": {
                "material": material.reshape(1, -1).astype(np.uint8),
                "collides": column_words(COLLIDES[material[0]])[None],
                "opaque": column_words(OPAQUE[material[0]])[None],
            },
            "zone": np.array([[arena.zone.x, arena.zone.y, arena.zone.radius]], np.float32),
            "contact_slots": np.array(arena.contact_slots, np.int32)[None],
        }
