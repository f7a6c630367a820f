"""One decision step of the simulation: the substeps and their phases in order (docs/spec/rules.md 9)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from echelon_jax.config import EnvConfig
from echelon_jax.sim.firing import fire
from echelon_jax.sim.movement import move
from echelon_jax.sim.noise import Noise
from echelon_jax.sim.projectiles import update_projectiles
from echelon_jax.sim.rules import SimRules
from echelon_jax.sim.slots import slots
from echelon_jax.sim.state import Commands, Grid, Mechs, Projectiles, SimState, Smoke, Tally
from echelon_jax.sim.upkeep import upkeep
from echelon_jax.sim.widths import LoopWidths, loop_widths
from echelon_jax.sim.wrecks import hashed_rolls


def initial_state(
    config: EnvConfig,
    rules: SimRules,
    grid: Grid,
    position: Float32[Array, "arenas mechs 3"],
    yaw: Float32[Array, "arenas mechs"],
) -> SimState:
    """A fresh state: everybody whole, cold, upright and at rest (docs/spec/rules.md 4.3), nothing in flight."""
    arenas, n = yaw.shape
    table = slots(config)

    def f(value: float = 0.0) -> Float32[Array, "arenas mechs"]:
        return jnp.full((arenas, n), value, jnp.float32)

    def i(value: int = 0) -> Int32[Array, "arenas mechs"]:
        return jnp.full((arenas, n), value, jnp.int32)

    def b(value: bool = False) -> Bool[Array, "arenas mechs"]:
        return jnp.full((arenas, n), value)

    def full(per_mech: Float32[Array, " mechs"]) -> Float32[Array, "arenas mechs"]:
        return jnp.broadcast_to(per_mech, (arenas, n))

    mechs = Mechs(
        position=position,
        velocity=jnp.zeros((arenas, n, 3), jnp.float32),
        yaw=yaw,
        hp=full(rules.max_hp),
        leg_hp=full(rules.max_leg_hp),
        heat=f(),
        stability=f(100.0),
        loudness=f(),
        alive=b(True),
        fallen=i(),
        suppressed=i(),
        ams_cooldown=i(),
        laser_cooldown=i(),
        tube_cooldown=i(),
        tube_was_smoke=b(),
        kinetic_cooldown=i(),
        painter_cooldown=i(),
        painted=i(),
        last_painter=i(-1),
        focus=i(-1),
        ecm_on=b(),
        eccm_on=b(),
        insertion_index=jnp.broadcast_to(jnp.arange(n, dtype=jnp.int32), (arenas, n)),
    )
    shots = (arenas, table.count)
    clouds = (arenas, n * table.clouds)

    def zero() -> Int32[Array, " arenas"]:
        return jnp.zeros((arenas,), jnp.int32)  # one buffer per field, so that a state can be donated

    return SimState(
        mechs=mechs,
        tally=empty_tally(config, arenas),
        projectiles=Projectiles(
            alive=jnp.zeros(shots, bool),
            weapon=jnp.zeros(shots, jnp.int32),
            target=jnp.full(shots, -1, jnp.int32),
            position=jnp.zeros((*shots, 3), jnp.float32),
            velocity=jnp.zeros((*shots, 3), jnp.float32),
            age=jnp.zeros(shots, jnp.int32),
            order=jnp.zeros(shots, jnp.int32),
            rolled=jnp.zeros(shots, jnp.uint8),
        ),
        smoke=Smoke(position=jnp.zeros((*clouds, 3), jnp.float32), life=jnp.zeros(clouds, jnp.int32)),
        grid=grid,
        tick=zero(),
        next_insertion_index=zero() + n,
        lost_shots=zero(),
        lost_clouds=zero(),
    )


def empty_tally(config: EnvConfig, arenas: int) -> Tally:
    """The tallies at the start of a decision step (docs/spec/rules.md 4.3)."""
    n, modern = config.num_mechs, config.counts_effective_damage

    def f() -> Float32[Array, "arenas mechs"]:
        return jnp.zeros((arenas, n), jnp.float32)

    def i() -> Int32[Array, "arenas mechs"]:
        return jnp.zeros((arenas, n), jnp.int32)

    def b() -> Bool[Array, "arenas mechs"]:
        return jnp.zeros((arenas, n), bool)

    return Tally(
        took_damage=f(),
        dealt_damage=f(),
        kills=i(),
        died=b(),
        was_hit=b(),
        damage_direction=jnp.zeros((arenas, n, 3), jnp.float32),
        has_damage_direction=b(),
        assists=i(),
        paints=i(),
        laser_hits=i(),
        missile_launches=i(),
        kinetic_fires=i(),
        smoke_launches=i(),
        projectile_hits=i(),
        explosions=i(),
        ams_intercepts=i(),
        friendly_damage=f(),
        friendly_kills=i(),
        effective_damage=f() if modern else None,
        friendly_effective_damage=f() if modern else None,
        kill_assists=i() if modern else None,
    )


def simulate(
    config: EnvConfig,
    rules: SimRules,
    state: SimState,
    commands: Commands,
    noise: Noise,
    widths: LoopWidths | None = None,
) -> SimState:
    """Run one decision step of a batch of arenas: `config.substeps` substeps under the same commands.

    Focus targets and EWAR switches must already be in `state.mechs` (docs/spec/rules.md 5.3). Pure and jit-able; the
    tally is cleared first.

    Args:
        widths: of the loops, which change the speed and not the result; those of the backend without them.

    Raises:
        ValueError: unless the noise holds fire_order and wreck exactly where the switch fair_order is on.
    """
    for name in ("fire_order", "wreck"):
        if (getattr(noise, name) is not None) != config.fair_order:
            raise ValueError(f"noise must hold {name} exactly where fair_order is on, it is {config.fair_order}")

    widths = widths or loop_widths(state.tick.shape[0])

    def substep(state: SimState, draws: Noise) -> tuple[SimState, None]:
        smoke = state.smoke.replace(life=jnp.maximum(state.smoke.life - 1, 0))
        state = state.replace(tick=state.tick + 1, smoke=smoke)
        wreck = draws.wreck
        if wreck is None and widths.fixed_rounds:  # nobody moves before the last phase, so one pass serves all of them
            wreck = hashed_rolls(config, rules, state.mechs)
        state = upkeep(config, rules, state, commands, widths, wreck)
        state = update_projectiles(config, rules, state, draws.ams, widths, wreck)
        state = fire(config, rules, state, commands, draws.hit_height, widths, draws.fire_order, wreck)
        state = move(config, rules, state, commands, draws.move_order, widths)
        return state, None

    state = state.replace(tally=empty_tally(config, state.mechs.alive.shape[0]))
    draws = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), noise)
    return jax.lax.scan(substep, state, draws)[0]
