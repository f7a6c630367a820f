"""One substep and one decision step of the simulation, in the order of evaluation (docs/spec/rules.md 9)."""

from __future__ import annotations

from collections.abc import Sequence

from echelon_jax.reference.movement import move
from echelon_jax.reference.noise import Noise
from echelon_jax.reference.projectiles import update_projectiles
from echelon_jax.reference.state import Battle, Event
from echelon_jax.reference.status import upkeep
from echelon_jax.reference.weapons import fire
from echelon_jax.rules.mechs import SCOUT
from echelon_jax.rules.weapons import SECONDARY

BASE_ACTIONS = 9  # components that the simulation reads


def substep(battle: Battle, actions: Sequence[list[float]], noise: Noise) -> None:
    """Advance by dt (docs/spec/rules.md 9.2): upkeep, projectiles, firing, movement, each mech after the other."""
    battle.tick += 1  # 1: clock
    battle.time_s += battle.config.dt
    noise.start_substep(battle.tick)
    battle.draws = noise
    for cloud in battle.clouds:  # 2: smoke
        cloud.life -= battle.config.dt
    battle.clouds = [cloud for cloud in battle.clouds if cloud.life > 0]
    for mech in battle.mechs:  # 3: upkeep
        if mech.alive:
            upkeep(battle, mech, actions[mech.index])
    update_projectiles(battle, noise)  # 4
    living = [mech.index for mech in battle.living()]  # 5: firing; who dies before its turn does not fire
    for index in noise.fire_order(living) if battle.config.fair_order else living:  # else blue before red (Q20)
        if battle.mechs[index].alive:
            fire(battle, battle.mechs[index], actions[index], noise)
    for index in noise.move_order([mech.index for mech in battle.living()]):  # 6: movement
        move(battle, battle.mechs[index], actions[index])


def simulate(battle: Battle, actions: Sequence[list[float]], noise: Noise) -> list[Event]:
    """The substeps of one decision step with the same actions; the events of all of them.

    Source: docs/spec/rules.md 9.1 steps 4 and 5.
    """
    for mech in battle.mechs:
        mech.clear_tallies()
    battle.events = []
    for _ in range(battle.config.substeps):
        substep(battle, actions, noise)
    return battle.events


def set_ewar(battle: Battle, actions: Sequence[list[float]]) -> None:
    """ECM and ECCM switches from the secondary trigger of living scouts; no latch.

    Source: docs/spec/rules.md 5.3, docs/spec/environment.md 1.4.
    """
    for mech in battle.mechs:
        selector = actions[mech.index][SECONDARY]
        able = battle.config.ewar and mech.alive and mech.class_id == SCOUT
        mech.eccm_on = able and selector > 0.5
        mech.ecm_on = able and 0 < selector <= 0.5


def set_ewar_modes(battle: Battle, modes: Sequence[int]) -> None:
    """The same switches from the modern actions' choice: 0 off, 1 ECM, 2 ECCM."""
    for mech in battle.mechs:
        able = battle.config.ewar and mech.alive and mech.class_id == SCOUT
        mech.ecm_on, mech.eccm_on = able and modes[mech.index] == 1, able and modes[mech.index] == 2
