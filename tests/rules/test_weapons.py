"""The table of weapons refuses what the simulators could not play or would silently cut off."""

import pytest

from echelon_jax.config import EnvConfig
from echelon_jax.rules.mechs import HEAVY, LIGHT, MEDIUM, SCOUT
from echelon_jax.rules.weapons import (
    AUTOCANNON,
    GAUSS,
    LASER,
    MISSILE,
    PAINTER,
    PRIMARY,
    SECONDARY,
    SMOKE,
    TERTIARY,
    VENT,
    WEAPONS,
    Kind,
    Timer,
    Weapon,
    checked,
)
from echelon_jax.sim.rules import sim_rules

PULSE = Weapon("pulse", 9.0, 6.0, 0.0, 9.0, 0.35, 80.0, triggers={SCOUT: PRIMARY})
GUN = Weapon(
    *("gun", 20.0, 9.0, 5.0, 9.0, 0.5, 80.0, 30.0),
    kind=Kind.BALLISTIC,
    timer=Timer.KINETIC,
    triggers={SCOUT: TERTIARY},
)


def changed(number: int, **fields: object) -> tuple[Weapon, ...]:
    """The table with other fields in one row."""
    rows = list(WEAPONS)
    rows[number] = rows[number]._replace(**fields)
    return tuple(rows)


def test_the_table_takes_a_hitscan_and_a_ballistic_row() -> None:
    assert checked((*WEAPONS, PULSE, GUN)) == (*WEAPONS, PULSE, GUN)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (PULSE._replace(name="laser"), "name of each weapon must be its own, got laser, flamer"),
        (PULSE._replace(range=24.5), "range of weapon pulse must be at most 24 voxels, got 24.5"),
        (GUN._replace(range=25.0), "range of weapon gun must be at most 24 voxels, got 25.0"),
        (GUN._replace(splash_radius=2.6), "splash_radius of weapon gun must be at most 2.5 voxels, got 2.6"),
        (
            GUN._replace(damage=30.0, splash_radius=2.0, splash_scale=0.25),
            "damage of weapon gun times its splash_scale must be a whole number",
        ),
        (PULSE._replace(cooldown=0.0), "cooldown of weapon pulse must be above 0, got 0.0"),
        (PULSE._replace(range=-1.0), "range of weapon pulse must be above 0, got -1.0"),
        (GUN._replace(speed=0.0), "speed of weapon gun must be above 0, got 0.0"),
        (PULSE._replace(speed=30.0), "speed of weapon pulse must be 0 for kind hitscan, which has no use for it"),
        (PULSE._replace(stability_damage=3.0), "stability_damage of weapon pulse must be 0 for kind hitscan"),
        (PULSE._replace(splash_radius=1.0), "splash_radius of weapon pulse must be 0 for kind hitscan"),
        (PULSE._replace(falls=True), "falls of weapon pulse must be 0 for kind hitscan"),
        (GUN._replace(heat_transfer=3.0), "heat_transfer of weapon gun must be 0 for kind ballistic"),
        (
            PULSE._replace(timer=Timer.TUBE),
            "timer of weapon pulse must be laser or kinetic or painter for kind hitscan",
        ),
        (GUN._replace(timer=Timer.LASER), "timer of weapon gun must be kinetic for kind ballistic, got laser"),
        (PULSE._replace(triggers={4: PRIMARY}), "triggers of weapon pulse must map classes 0 to 3 to 4"),
        (PULSE._replace(triggers={SCOUT: VENT}), "triggers of weapon pulse must map classes 0 to 3 to 4"),
        (PULSE._replace(triggers={SCOUT: SECONDARY}), "triggers of weapon pulse must not be 6 .* for the scout"),
        (PULSE._replace(triggers={LIGHT: PRIMARY}), "timer laser must serve at most one .*, got laser, pulse of light"),
        (GUN._replace(triggers={LIGHT: TERTIARY}), "timer kinetic must serve at most one .*, got flamer, gun of light"),
        (GUN._replace(triggers={HEAVY: TERTIARY}), "timer kinetic must serve at most one .*, got gauss, gun of heavy"),
        (GUN._replace(kind=Kind.SMOKE, timer=Timer.TUBE, splash_radius=4.0), "kind smoke must be that of exactly one"),
    ],
)
def test_a_new_row_that_cannot_be_played_is_refused(row: Weapon, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked((*WEAPONS, row))


@pytest.mark.parametrize(
    ("number", "fields", "message"),
    [
        (MISSILE, {"triggers": {MEDIUM: SECONDARY}}, "triggers of weapon missile must name no class but heavy"),
        (SMOKE, {"splash_radius": 3.0}, "splash_radius of weapon smoke must be that of a cloud, 4 voxels, got 3.0"),
        (PAINTER, {"damage": 1.0}, "damage of weapon painter must be 0 for kind painter"),
        (LASER, {"timer": Timer.KINETIC, "triggers": {}}, "timer of some weapon must be laser, got none"),
        (GAUSS, {"name": "rail gun"}, "weapons must begin with laser .hitscan., flamer"),
    ],
)
def test_a_row_of_the_original_that_cannot_be_played_is_refused(number: int, fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked(changed(number, **fields))


@pytest.mark.parametrize(
    ("weapons", "message"),
    [
        ((*WEAPONS, PULSE), "weapons must be 7 rows, one for each of the table, got 8"),
        (changed(LASER, triggers={}), "triggers of weapon laser must be .*, as in rules/weapons.py, got {}"),
        (changed(AUTOCANNON, suppresses=False), "suppresses of weapon autocannon must be True, as in rules/weapons.py"),
        (changed(LASER, range=30.0), "range of weapon laser must be at most 24 voxels, got 30.0"),
    ],
)
def test_rules_of_a_changed_copy_refuse_what_only_a_changed_program_could_play(weapons: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sim_rules(EnvConfig(), weapons=weapons)


def test_rules_of_a_changed_copy_hold_its_numbers() -> None:
    rules = sim_rules(EnvConfig(), weapons=changed(LASER, heat_transfer=1.5, cooldown=1.0))
    assert rules.heat_transfer[LASER] == 1.5 and rules.cooldown[LASER] == 20
