// What the simulation reads and writes, in the order in which echelon_jax/native/arguments.py hands it over.
// F(type, group, name): `group` is an object of the Python side, `name` its field; one row of each array belongs to an arena.
#pragma once

// Read and written in place (sim/state.py).
#define ECHELON_STATE(F)                     \
  F(float, mechs, position)                  \
  F(float, mechs, velocity)                  \
  F(float, mechs, yaw)                       \
  F(float, mechs, hp)                        \
  F(float, mechs, leg_hp)                    \
  F(float, mechs, heat)                      \
  F(float, mechs, stability)                 \
  F(float, mechs, loudness)                  \
  F(bool, mechs, alive)                      \
  F(int32_t, mechs, fallen)                  \
  F(int32_t, mechs, suppressed)              \
  F(int32_t, mechs, ams_cooldown)            \
  F(int32_t, mechs, laser_cooldown)          \
  F(int32_t, mechs, tube_cooldown)           \
  F(bool, mechs, tube_was_smoke)             \
  F(int32_t, mechs, kinetic_cooldown)        \
  F(int32_t, mechs, painter_cooldown)        \
  F(int32_t, mechs, painted)                 \
  F(int32_t, mechs, last_painter)            \
  F(int32_t, mechs, insertion_index)         \
  F(float, tally, took_damage)               \
  F(float, tally, dealt_damage)              \
  F(int32_t, tally, kills)                   \
  F(bool, tally, died)                       \
  F(bool, tally, was_hit)                    \
  F(float, tally, damage_direction)          \
  F(bool, tally, has_damage_direction)       \
  F(int32_t, tally, assists)                 \
  F(int32_t, tally, paints)                  \
  F(int32_t, tally, laser_hits)              \
  F(int32_t, tally, missile_launches)        \
  F(int32_t, tally, kinetic_fires)           \
  F(int32_t, tally, smoke_launches)          \
  F(int32_t, tally, projectile_hits)         \
  F(int32_t, tally, explosions)              \
  F(int32_t, tally, ams_intercepts)          \
  F(float, tally, friendly_damage)           \
  F(int32_t, tally, friendly_kills)          \
  F(float, tally, effective_damage)          \
  F(float, tally, friendly_effective_damage) \
  F(int32_t, tally, kill_assists)            \
  F(bool, projectiles, alive)                \
  F(int32_t, projectiles, weapon)            \
  F(int32_t, projectiles, target)            \
  F(float, projectiles, position)            \
  F(float, projectiles, velocity)            \
  F(int32_t, projectiles, age)               \
  F(int32_t, projectiles, order)             \
  F(uint8_t, projectiles, rolled)            \
  F(float, smoke, position)                  \
  F(int32_t, smoke, life)                    \
  F(uint8_t, grid, material)                 \
  F(int16_t, grid, hp)                       \
  F(uint32_t, grid, collides)                \
  F(uint32_t, grid, opaque)                  \
  F(int32_t, state, tick)                    \
  F(int32_t, state, next_insertion_index)    \
  F(int32_t, state, lost_shots)              \
  F(int32_t, state, lost_clouds)

// Only read: one row an arena (sim/state.py, sim/noise.py). A resting arena stays as it is. fire_order and wreck are empty without the switch fair_order.
#define ECHELON_INPUT(F)          \
  F(bool, arenas, resting)        \
  F(int32_t, mechs, focus)        \
  F(bool, mechs, ecm_on)          \
  F(bool, mechs, eccm_on)         \
  F(float, commands, throttle)    \
  F(bool, commands, primary)      \
  F(bool, commands, vent)         \
  F(bool, commands, secondary)    \
  F(bool, commands, tertiary)     \
  F(bool, commands, special)      \
  F(float, noise, ams)            \
  F(float, noise, hit_height)     \
  F(int32_t, noise, move_order)   \
  F(int32_t, noise, fire_order)   \
  F(float, noise, wreck)

// Only read, the same for all arenas: the numbers of the rules (sim/rules.py), then tables of the roster and of the slots.
#define ECHELON_SHARED(F)                     \
  F(float, rules, half)                       \
  F(float, rules, hit_radius)                 \
  F(float, rules, max_speed)                  \
  F(float, rules, max_yaw_rate)               \
  F(float, rules, max_jet_accel)              \
  F(float, rules, heat_cap)                   \
  F(float, rules, heat_dissipation)           \
  F(float, rules, solid_wreck_probability)    \
  F(float, rules, loudness_factor)            \
  F(float, rules, range)                      \
  F(float, rules, damage)                     \
  F(float, rules, stability_damage)           \
  F(float, rules, weapon_heat)                \
  F(float, rules, arc_cosine)                 \
  F(float, rules, heat_transfer)              \
  F(float, rules, speed)                      \
  F(float, rules, splash_radius)              \
  F(float, rules, splash_scale)               \
  F(int32_t, rules, cooldown)                 \
  F(int32_t, rules, moves)                    \
  F(int32_t, rules, paint_substeps)           \
  F(int32_t, rules, suppression_substeps)     \
  F(int32_t, rules, fallen_substeps)          \
  F(int32_t, rules, ams_substeps)             \
  F(int32_t, rules, cloud_substeps)           \
  F(float, rules, gravity)                    \
  F(int32_t, tables, team)                    \
  F(int32_t, tables, pack)                    \
  F(int32_t, tables, heavy)                   \
  F(int32_t, tables, heavy_of)                \
  F(int32_t, tables, barrel)                  \
  F(int32_t, tables, trigger)                 \
  F(int32_t, tables, hitscan)                 \
  F(int32_t, tables, timer)                   \
  F(int32_t, tables, slot_mech)               \
  F(int32_t, tables, slot_launcher)           \
  F(int32_t, tables, slot_ring)               \
  F(uint32_t, tables, wreck_head)

// Numbers that hold for a whole program, in the order in which they are handed over.
#define ECHELON_NUMBERS(F) \
  F(size_x)                \
  F(size_y)                \
  F(size_z)                \
  F(packs)                 \
  F(mechs)                 \
  F(substeps)              \
  F(slots)                 \
  F(clouds)                \
  F(heavies)               \
  F(rings)                 \
  F(effective_damage)      \
  F(true_voxel_hp)         \
  F(honour_focus)          \
  F(fair_order)            \
  F(own_team_counts_against) \
  F(clamp_before_collision) \
  F(shots_end_at_border)   \
  F(smoke_opens)           \
  F(ceiling)               \
  F(ams_one_roll)
