// New projectiles: start points and velocities, in the launcher's first free slot (docs/spec/rules.md 5.9, 5.11, 6.1).
#pragma once

#include "arena.h"

namespace echelon {

enum Launcher { TUBE = 0, BARREL = 1 };
enum ShotOfTurn { FIRST = 0, SECOND = 1, THIRD = 2, SHOTS_OF_TURN = 3 };  // missile, ballistic, smoke

HD void spawn(const Arena& a, int mech, Launcher launcher, int weapon, int target, float above, Vec velocity, int rank, int shot) {
  bool has_launcher = false;
  for (int slot = 0; slot < a.n.slots; ++slot) {
    if (a.tables_slot_mech[slot] != mech || a.tables_slot_launcher[slot] != launcher) continue;
    has_launcher = true;
    if (a.projectiles_alive[slot]) continue;
    Vec p = where(a, mech);
    a.projectiles_alive[slot] = true;
    a.projectiles_weapon[slot] = weapon;
    a.projectiles_target[slot] = target;
    store(a.projectiles_position, slot, {p.x, p.y, p.z + above});
    store(a.projectiles_velocity, slot, velocity);
    a.projectiles_age[slot] = 0;
    a.projectiles_order[slot] = (*a.state_tick * a.n.mechs + rank) * SHOTS_OF_TURN + shot;
    if (a.n.ams_one_roll) a.projectiles_rolled[slot] = 0;
    return;
  }
  if (has_launcher) *a.state_lost_shots += 1;
}

HD Vec facing(const Arena& a, int mech) { return {cosf(a.mechs_yaw[mech]), sinf(a.mechs_yaw[mech]), 0.0f}; }

HD void launch_missile(const Arena& a, int mech, int target, int rank) {
  Vec offset = where(a, target) - where(a, mech);
  Vec n = offset / (length(offset) + F(1e-6));
  n.z = n.z + F(k::MISSILE_VERTICAL_COMPONENT);
  Vec velocity = (a.rules_speed[MISSILE] * n) / length(n);
  spawn(a, mech, TUBE, MISSILE, target, a.rules_half[3 * mech + 2] + F(k::MISSILE_SPAWN_OFFSET), velocity, rank, FIRST);
}

// A ballistic shot, aimed at `target` or straight ahead (-1).
HD void launch_ballistic(const Arena& a, int mech, int weapon, int target, int rank) {
  float muzzle = F(k::BARREL_HEIGHT_FRACTION) * a.rules_half[3 * mech + 2], speed = a.rules_speed[weapon];
  Vec velocity = speed * facing(a, mech);
  if (target >= 0) {
    Vec aim = where(a, target) - where(a, mech);
    aim.z = aim.z + -muzzle;
    float distance = length(aim), flight = distance / speed, norm = distance;
    if ((FALLING >> weapon) & 1u) {
      aim.z = aim.z + 0.5f * *a.rules_gravity * flight * flight;
      norm = length(aim) + F(1e-6);
    }
    if (distance > F(1e-6)) velocity = (speed * aim) / maximum(norm, F(1e-6));
  }
  spawn(a, mech, BARREL, weapon, -1, muzzle, velocity, rank, SECOND);
}

// A smoke shell, level, towards `target` or straight ahead (-1).
HD void launch_smoke(const Arena& a, int mech, int target, int rank) {
  Vec direction = facing(a, mech);
  if (target >= 0) {
    Vec level = where(a, target) - where(a, mech);
    level.z = 0.0f;
    float far = length(level);
    if (far > F(1e-6)) direction = level / maximum(far, F(1e-6));
  }
  spawn(a, mech, TUBE, SMOKE, -1, a.rules_half[3 * mech + 2], a.rules_speed[SMOKE] * direction, rank, THIRD);
}

}  // namespace echelon
