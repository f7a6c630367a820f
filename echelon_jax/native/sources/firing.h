// Firing: living mechs fire one by one, each seeing what the earlier ones did (docs/spec/rules.md 5, 9.3).
#pragma once

#include "launch.h"
#include "voxels.h"

namespace echelon {

// What a shooter needs to know of itself during its turn.
struct Shooter {
  int mech;
  float cosine, sine;  // of its yaw
};

HD float distance_to(const Arena& a, int mech, int other) {
  Vec d = where(a, other) - where(a, mech);
  return sqrtf(d.x * d.x + d.y * d.y + d.z * d.z);
}

// Cosine of the yaw error to another mech (5.4).
HD float bearing_to(const Arena& a, const Shooter& me, int other) {
  Vec d = where(a, other) - where(a, me.mech);
  float flat = sqrtf(d.x * d.x + d.y * d.y);
  return flat <= F(1e-6) ? 1.0f : (me.cosine * d.x + me.sine * d.y) / maximum(flat, F(1e-6));
}

// Nearest-candidate rule (5.4): the closest; exact ties go to the focus, then to grid order. Under honour_focus a focus among the
// candidates is nearer than any other (Q2). Rays are walked only for a candidate that would win. -1 for none.
template <class Candidate, class Sees>
HD int nearest(const Arena& a, const Shooter& me, int focus, Candidate candidate, Sees visible) {
  bool refused[MAX_MECHS] = {};
  for (;;) {
    int best = -1;
    float closest = 0;
    for (int o = 0; o < a.n.mechs; ++o) {
      if (refused[o] || !enemies(a, me.mech, o) || !a.mechs_alive[o]) continue;
      float distance = distance_to(a, me.mech, o);
      if (!candidate(o, distance)) continue;
      if (a.n.honour_focus && o == focus) distance = -1.0f;
      if (best >= 0 && distance > closest) continue;
      bool tie = best >= 0 && distance == closest;
      if (tie && (best == focus || (o != focus && grid_rank(a, best) < grid_rank(a, o)))) continue;
      best = o;
      closest = distance;
    }
    if (best < 0 || visible(best)) return best;
    refused[best] = true;
  }
}

HD int32_t* timer_of(const Arena& a, int weapon) {
  switch (a.tables_timer[weapon]) {
    case LASER_TIMER: return a.mechs_laser_cooldown;
    case KINETIC_TIMER: return a.mechs_kinetic_cooldown;
    default: return a.mechs_painter_cooldown;
  }
}

// One shot with a hitscan weapon (5.7); `height` is the drawn height of the hit.
HD void fire_hitscan(const Arena& a, const Shooter& me, int weapon, float height, const float* rolls) {
  const int i = me.mech;
  int32_t* cooldown = timer_of(a, weapon);
  if (!pressed(a, i, weapon) || cooldown[i] > 0) return;
  int target = nearest(
      a, me, a.mechs_focus[i],
      [&](int o, float distance) {
        return distance <= a.rules_range[weapon] && bearing_to(a, me, o) >= a.rules_arc_cosine[weapon];
      },
      [&](int o) { return sees(a, i, o); });
  if (target < 0) return;

  Vec centre = where(a, target), own = where(a, i);
  float damage = a.rules_damage[weapon] * rear_multiplier(a.mechs_yaw[target], centre, own);
  int painter = a.mechs_last_painter[target];
  bool bonus = a.mechs_painted[target] > 0 && painter >= 0 && same_pack(a, i, painter);
  damage = damage + (bonus ? F(k::PAINT_BONUS) * damage : 0.0f);
  float half_z = a.rules_half[3 * target + 2];
  float hit_z = centre.z + 0.5f * (-half_z + 2.0f * half_z * height);
  if (is_leg_hit(hit_z, centre.z, half_z)) {
    a.mechs_leg_hp[target] -= damage;
    damage = F(k::LEG_HIT_BODY_MULTIPLIER) * damage;
  }
  float had = a.mechs_hp[target];
  bool killed = had - damage <= 0;  // a target is alive
  a.mechs_hp[target] = had - damage;
  a.mechs_heat[i] += a.rules_weapon_heat[weapon];
  a.mechs_heat[target] += a.rules_heat_transfer[weapon];
  cooldown[i] = a.rules_cooldown[weapon];
  a.tally_took_damage[target] += damage;
  a.tally_dealt_damage[i] += damage;
  a.tally_kills[i] += killed;
  a.tally_died[target] = a.tally_died[target] || killed;
  a.tally_was_hit[target] = true;
  turn_to(a, target, own - centre);
  bool assisted = bonus && painter != i;
  if (assisted) a.tally_assists[painter] += 1;
  a.tally_laser_hits[i] += 1;
  count_hit(a, i, assisted ? painter : -1, damage, had, killed);
  if (killed) {
    a.mechs_alive[target] = false;
    place_wreck(a, target, nullptr, rolls);
  }
}

// Sensor quality of one viewer (5.12) from the sources that are alive and powered right now.
HD float sensor_quality(const Arena& a, int viewer) {
  float jam = 0, eccm = 0;
  for (int o = 0; o < a.n.mechs; ++o) {
    if (!a.mechs_alive[o] || shut_down(a, o)) continue;
    float felt = maximum(1.0f - distance_to(a, viewer, o) / F(k::EWAR_RADIUS), 0.0f);
    if (enemies(a, viewer, o)) {
      if (a.mechs_ecm_on[o]) jam = maximum(jam, felt);
    } else if (o != viewer && a.mechs_eccm_on[o]) {
      eccm = maximum(eccm, felt);
    }
  }
  float q = 1.0f - F(k::ECM_WEIGHT) * jam + F(k::ECCM_WEIGHT) * eccm;
  return clip(q, F(k::SENSOR_QUALITY_MIN), F(k::SENSOR_QUALITY_MAX));
}

// Missile (5.8): a paint lock of the own pack, or an onboard lock by sight. Returns the target, -1 for none.
HD int missile_target(const Arena& a, const Shooter& me) {
  const int i = me.mech;
  bool clear_sensors = sensor_quality(a, i) >= F(k::PAINT_LOCK_QUALITY);
  auto paint_lock = [&](int o) {
    int painter = a.mechs_last_painter[o];
    return clear_sensors && a.mechs_painted[o] > 0 && painter >= 0 && same_pack(a, i, painter) &&
           distance_to(a, i, o) <= a.rules_range[MISSILE];
  };
  return nearest(
      a, me, a.mechs_focus[i],
      [&](int o, float distance) {
        return bearing_to(a, me, o) >= a.rules_arc_cosine[MISSILE] &&
               (distance <= F(k::ONBOARD_LOCK_RANGE) || paint_lock(o));
      },
      [&](int o) {
        return paint_lock(o) || (distance_to(a, i, o) <= F(k::ONBOARD_LOCK_RANGE) && sees(a, i, o));
      });
}

// What a ballistic weapon aims at (5.9): within a narrow cone, wider for the focus; -1 for nobody.
HD int aimed_at(const Arena& a, const Shooter& me, int weapon) {
  const int focus = a.mechs_focus[me.mech];
  float limit = a.rules_range[weapon];
  bool focused = false;
  if (focus >= 0 && enemies(a, me.mech, focus) && a.mechs_alive[focus]) {
    float distance = distance_to(a, me.mech, focus);
    focused = distance <= limit && bearing_to(a, me, focus) > F(KINETIC_FOCUS_COSINE);
    if (focused) limit = distance;
  }
  if (focused && a.n.honour_focus) return focus;
  int other = nearest(
      a, me, -1,
      [&](int o, float distance) {
        return o != focus && distance < limit && bearing_to(a, me, o) > F(KINETIC_COSINE);
      },
      [](int) { return true; });
  return other >= 0 ? other : (focused ? focus : -1);
}

// Missile, ballistic weapon, painter and smoke of one mech, in this order; each re-tests shutdown (5.8 to 5.11).
HD void fire_others(const Arena& a, const Shooter& me, int rank) {
  const int i = me.mech, focus = a.mechs_focus[i];
  if (pressed(a, i, MISSILE) && !shut_down(a, i) && a.mechs_tube_cooldown[i] <= 0) {
    int target = missile_target(a, me);
    if (target >= 0) {
      launch_missile(a, i, target, rank);
      a.mechs_heat[i] += a.rules_weapon_heat[MISSILE];
      a.mechs_tube_cooldown[i] = a.rules_cooldown[MISSILE];
      a.mechs_tube_was_smoke[i] = false;
      a.tally_missile_launches[i] += 1;
    }
  }

  const int kinetic = a.tables_barrel[i];
  if (kinetic >= 0 && pressed(a, i, kinetic) && !shut_down(a, i) && a.mechs_fallen[i] <= 0 &&
      a.mechs_kinetic_cooldown[i] <= 0) {
    launch_ballistic(a, i, kinetic, aimed_at(a, me, kinetic), rank);
    a.mechs_heat[i] += a.rules_weapon_heat[kinetic];
    a.mechs_kinetic_cooldown[i] = a.rules_cooldown[kinetic];
    a.tally_kinetic_fires[i] += 1;
  }

  if (pressed(a, i, PAINTER) && !shut_down(a, i) && a.mechs_painter_cooldown[i] <= 0) {
    int target = nearest(
        a, me, focus,
        [&](int o, float distance) {
          return distance <= a.rules_range[PAINTER] && bearing_to(a, me, o) >= a.rules_arc_cosine[PAINTER];
        },
        [&](int o) { return sees(a, i, o); });
    if (target >= 0) {
      a.mechs_heat[i] += a.rules_weapon_heat[PAINTER];
      a.mechs_painter_cooldown[i] = a.rules_cooldown[PAINTER];
      a.mechs_painted[target] = *a.rules_paint_substeps;
      a.mechs_last_painter[target] = i;
      a.tally_paints[i] += 1;
    }
  }

  if (pressed(a, i, SMOKE) && !shut_down(a, i) && a.mechs_tube_cooldown[i] <= 0) {
    bool aims = focus >= 0 && a.mechs_alive[focus] && distance_to(a, i, focus) <= a.rules_range[SMOKE];
    launch_smoke(a, i, aims ? focus : -1, rank);
    a.mechs_heat[i] += a.rules_weapon_heat[SMOKE];
    a.mechs_tube_cooldown[i] = a.rules_cooldown[SMOKE];
    a.mechs_tube_was_smoke[i] = true;
    a.tally_smoke_launches[i] += 1;
  }
}

// The firing phase in roster order, or in `order` under fair_order. `heights` are by shooter and hitscan weapon.
HD void fire(const Arena& a, const float* heights, const int32_t* order, const float* rolls) {
  for (int turn = 0; turn < a.n.mechs; ++turn) {
    const int i = order ? order[turn] : turn;
    if (!a.mechs_alive[i]) continue;
    const Shooter me = {i, cosf(a.mechs_yaw[i]), sinf(a.mechs_yaw[i])};
    // Shutdown is tested once before the laser, not again before the flamer (Q16).
    if (!shut_down(a, i))
      for (int column = 0; column < HITSCAN_WEAPONS; ++column)
        fire_hitscan(a, me, a.tables_hitscan[column], heights[i * HITSCAN_WEAPONS + column], rolls);
    fire_others(a, me, turn);
  }
}

}  // namespace echelon
