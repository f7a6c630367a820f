// Projectiles: every shot in flight in list order, each seeing what the earlier ones did (docs/spec/rules.md 6.2 to 6.6, 9.4).
#pragma once

#include "effects.h"

namespace echelon {

// Point defence (6.2 step 2): the first ready heavy of the target's team in range whose roll succeeds; -1 for none.
// Under ams_one_roll each of them rolls once for a missile, and `rolled` remembers who has.
HD int intercepted_by(const Arena& a, int slot, Vec position, const float* ams, uint8_t& rolled) {
  int target = a.projectiles_target[slot], packs = a.n.packs, defender = -1;
  int launcher = maximum(a.tables_heavy_of[a.tables_slot_mech[slot]], 0);
  const float* rolls = ams + (launcher * a.n.rings + a.tables_slot_ring[slot]) * packs;
  for (int pack = 0; pack < packs; ++pack) {
    int heavy = a.tables_heavy[target >= a.n.mechs / 2 ? packs + pack : pack];
    bool ready = a.mechs_alive[heavy] && !shut_down(a, heavy) && a.mechs_ams_cooldown[heavy] <= 0;
    if (!ready || length(where(a, heavy) - position) > F(k::AMS_RANGE)) continue;
    if (a.n.ams_one_roll) {
      if ((rolled >> pack) & 1) continue;
      rolled = static_cast<uint8_t>(rolled | (1 << pack));
    }
    if (defender < 0 && rolls[pack] < F(k::AMS_PROBABILITY)) defender = heavy;
  }
  return defender;
}

// Guidance (6.2 step 3): missiles turn to their living target, slugs fall, the rest fly straight.
HD Vec guided(const Arena& a, int weapon, int target, Vec position, Vec velocity) {
  if (weapon == MISSILE && target >= 0 && a.mechs_alive[target]) {
    Vec to = where(a, target) - position;
    float distance = length(to);
    if (distance > F(0.1)) {
      float speed = a.rules_speed[MISSILE];
      double gain = k::HOMING_GAIN * a.n.dt;
      Vec wanted = F(1.0 - gain) * velocity + F(gain) * ((speed * to) / maximum(distance, F(0.1)));
      return (speed * wanted) / (length(wanted) + F(1e-6));
    }
  }
  if ((FALLING >> weapon) & 1u) velocity.z = velocity.z - *a.rules_gravity * a.dt;
  return velocity;
}

// The impact point just in front of a struck cell (6.6).
HD Vec point_before_cell(Vec start, Vec end, int x, int y, int z) {
  const Vec d = end - start;
  const float da[3] = {d.x, d.y, d.z}, from[3] = {start.x, start.y, start.z};
  const int cell[3] = {x, y, z};
  float entry = 0;
  for (int axis = 0; axis < 3; ++axis) {
    if (!(fabsf(da[axis]) > F(1e-9))) continue;
    float face = static_cast<float>(cell[axis]) + (da[axis] < 0 ? 1.0f : 0.0f);
    entry = maximum(entry, (face - from[axis]) / da[axis]);
  }
  return start + clip(entry - F(1e-4), 0.0f, 1.0f) * d;
}

// One update of one projectile, up to and including what it strikes.
HD void update_projectile(const Arena& a, int slot, const float* ams, const float* rolls) {
  const int weapon = a.projectiles_weapon[slot], target = a.projectiles_target[slot], shooter = a.tables_slot_mech[slot];
  const Vec position = load(a.projectiles_position, slot);
  const int age = a.projectiles_age[slot] + 1;
  bool ended = age > a.rules_moves[weapon], impact = false;
  uint8_t rolled = a.projectiles_rolled[slot];
  int defender = !ended && weapon == MISSILE && target >= 0 ? intercepted_by(a, slot, position, ams, rolled) : -1;
  const bool flying = !ended && defender < 0;
  const Vec velocity = guided(a, weapon, target, position, load(a.projectiles_velocity, slot));
  const Vec step = a.dt * velocity, ahead = position + step;

  Impact e = {weapon, shooter, 0, false, false, 0, 0, 0, ahead, velocity};
  if (flying) {
    // Mech sweep (6.4): closest approach of the step to each enemy's centre; smallest parameter, then roster order.
    float length2 = dot(step, step), first = 0;
    bool candidate = false;
    for (int m = 0; m < a.n.mechs && length2 > F(1e-12); ++m) {
      if (!a.mechs_alive[m] || !enemies(a, shooter, m)) continue;
      Vec to = where(a, m) - position;
      float t = clip(dot(to, step) / maximum(length2, F(1e-12)), 0.0f, 1.0f);
      Vec miss = to - t * step;
      if (dot(miss, miss) > a.rules_hit_radius[m] * a.rules_hit_radius[m] || (candidate && t >= first)) continue;
      candidate = true;
      first = t;
      e.victim = m;
    }
    Vec closest = position + first * step, end = candidate ? closest : ahead;

    // Terrain (6.5).
    Ray ray = walk(a, position, end, true);
    const float half = F(k::PROJECTILE_BOX_HALF);
    const Vec box = {half, half, half};
    e.direct = candidate && !ray.blocked;
    impact = candidate || ray.blocked || box_hits(a, ahead - box, ahead + box);
    e.struck = ray.blocked && ray.struck;
    e.x = ray.x;
    e.y = ray.y;
    e.z = ray.z;
    if (e.struck) e.point = point_before_cell(position, end, e.x, e.y, e.z);
    if (e.direct) e.point = closest;
    if (a.n.shots_end_at_border && !e.direct && !e.struck) {  // a mech or a cell on the way comes first
      bool outside = ahead.x < 0 || ahead.y < 0 || ahead.x >= static_cast<float>(a.n.size_x) ||
                     ahead.y >= static_cast<float>(a.n.size_y) || ahead.z >= static_cast<float>(a.n.size_z);
      ended = ended || outside;
      impact = impact && !outside;
    }
  } else if (a.n.smoke_opens && weapon == SMOKE) {  // the end of a shell's flight is an impact where it is, on nothing
    ended = false;
    impact = true;
    e.point = position;
  }

  if (ended || defender >= 0 || impact) a.projectiles_alive[slot] = false;
  store(a.projectiles_position, slot, ahead);
  store(a.projectiles_velocity, slot, velocity);
  a.projectiles_age[slot] = age;
  if (a.n.ams_one_roll) a.projectiles_rolled[slot] = rolled;
  if (defender >= 0) {
    a.mechs_ams_cooldown[defender] = *a.rules_ams_substeps;
    a.tally_ams_intercepts[defender] += 1;
  }
  if (impact) strike(a, e, rolls);
}

// The phase; `ams` are the draws of point defence by launcher, ring and pack.
HD void update_projectiles(const Arena& a, const float* ams, const float* rolls) {
  int64_t last = INT64_MIN;
  for (;;) {
    int next = -1;
    for (int slot = 0; slot < a.n.slots; ++slot)
      if (a.projectiles_alive[slot] && a.projectiles_order[slot] > last &&
          (next < 0 || a.projectiles_order[slot] < a.projectiles_order[next]))
        next = slot;
    if (next < 0) return;
    last = a.projectiles_order[next];
    update_projectile(a, next, ams, rolls);
  }
}

}  // namespace echelon
