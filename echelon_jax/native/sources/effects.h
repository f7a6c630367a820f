// What a projectile does when it strikes: direct hit, smoke, explosion (docs/spec/rules.md 6.7, 6.8).
#pragma once

#include "voxels.h"

namespace echelon {

struct Impact {
  int weapon, shooter, victim;
  bool direct, struck;
  int x, y, z;  // the struck cell
  Vec point, velocity;
};

// A direct hit on the struck mech, except its wreck. Returns whether it died.
HD bool direct_hit(const Arena& a, const Impact& e) {
  int victim = e.victim, shooter = e.shooter;
  Vec centre = where(a, victim);
  float multiplier = rear_multiplier(a.mechs_yaw[victim], centre, centre - e.velocity);
  float damage = a.rules_damage[e.weapon] * multiplier;
  if (is_leg_hit(e.point.z, centre.z, a.rules_half[3 * victim + 2])) {
    a.mechs_leg_hp[victim] -= damage;  // before the paint bonus (Q18)
    damage = F(k::LEG_HIT_BODY_MULTIPLIER) * damage;
  }
  int painter = a.mechs_last_painter[victim];
  bool painted = a.mechs_painted[victim] > 0 && painter >= 0 && same_pack(a, painter, shooter);
  if (painted) damage = damage + F(k::PAINT_BONUS) * damage;
  float shove = a.rules_stability_damage[e.weapon] * multiplier;
  float had = a.mechs_hp[victim];
  a.mechs_hp[victim] = had - damage;
  bool dies = a.mechs_alive[victim] && a.mechs_hp[victim] <= 0;
  a.mechs_stability[victim] = maximum(0.0f, a.mechs_stability[victim] - shove);
  if ((SUPPRESSING >> e.weapon) & 1u)
    a.mechs_suppressed[victim] = maximum(a.mechs_suppressed[victim], *a.rules_suppression_substeps);
  if (dies) a.mechs_alive[victim] = false;
  a.tally_took_damage[victim] += damage;
  a.tally_dealt_damage[shooter] += damage;
  a.tally_kills[shooter] += dies;
  a.tally_died[victim] = a.tally_died[victim] || dies;
  a.tally_was_hit[victim] = true;
  turn_to(a, victim, where(a, shooter) - centre);
  bool assisted = painted && painter != shooter;
  if (assisted) a.tally_assists[painter] += 1;
  a.tally_projectile_hits[shooter] += 1;
  count_hit(a, shooter, assisted ? painter : -1, damage, had, dies);
  return dies;
}

// A new cloud in a free slot of its shooter; without one the oldest goes, counted.
HD void open_cloud(const Arena& a, int shooter, Vec centre) {
  int slot = shooter * a.n.clouds;
  for (int c = slot + 1; c < (shooter + 1) * a.n.clouds; ++c)
    if (a.smoke_life[c] < a.smoke_life[slot]) slot = c;
  if (a.smoke_life[slot] > 0) *a.state_lost_clouds += 1;
  store(a.smoke_position, slot, centre);
  a.smoke_life[slot] = *a.rules_cloud_substeps;
}

// Hurt the mechs around a blast in grid order until one dies, in rounds: a wreck that is due rises, then all targets up to and
// including the first that dies are served. `dead` is the mech that a direct hit just killed, -1 for none (Q13).
HD void splash(const Arena& a, const Impact& e, Vec point, bool active, int dead, const float* rolls) {
  bool pending[MAX_MECHS], reached[MAX_MECHS];
  const int n = a.n.mechs, shooter = e.shooter;
  float radius = a.rules_splash_radius[e.weapon];
  bool any = false;
  for (int m = 0; m < n; ++m) {
    pending[m] = active && a.mechs_alive[m] && !(e.direct && m == e.victim) && length(where(a, m) - point) <= radius;
    any = any || pending[m];
  }
  float damage = a.rules_damage[e.weapon] * a.rules_splash_scale[e.weapon];
  float shove = a.rules_stability_damage[e.weapon] * a.rules_splash_scale[e.weapon];
  while (any || dead >= 0) {
    if (dead >= 0) place_wreck(a, dead, nullptr, rolls);
    dead = -1;
    int last = n;  // rank of the first that dies
    for (int m = 0; m < n; ++m) {
      reached[m] = pending[m] && !walk(a, point, where(a, m), false).blocked;
      if (!reached[m] || a.mechs_hp[m] - damage > 0) continue;
      int rank = grid_rank(a, m);
      if (rank < last) {
        last = rank;
        dead = m;
      }
    }
    int hits = 0, own_hits = 0, kills = 0, own_kills = 0;
    float on_enemies = 0, on_friends = 0;
    any = false;
    for (int m = 0; m < n; ++m) {
      if (!pending[m]) continue;
      if (dead >= 0 && grid_rank(a, m) > last) {
        any = true;
        continue;
      }
      pending[m] = false;
      if (!reached[m]) continue;
      bool own = !enemies(a, shooter, m);
      float worth = minimum(damage, maximum(a.mechs_hp[m], 0.0f));
      a.mechs_hp[m] = a.mechs_hp[m] - damage;
      a.mechs_stability[m] = maximum(0.0f, a.mechs_stability[m] - shove);
      a.tally_took_damage[m] += damage;
      a.tally_was_hit[m] = true;
      turn_to(a, m, point - where(a, m));
      hits += 1;
      own_hits += own;
      (own ? on_friends : on_enemies) += worth;
      if (m != dead) continue;
      kills += 1;
      own_kills += own;
      a.mechs_alive[m] = false;
      a.tally_died[m] = true;
      int painter = a.mechs_last_painter[m];
      if (a.n.effective_damage && a.mechs_painted[m] > 0 && painter >= 0 && painter != shooter && same_pack(a, shooter, painter))
        a.tally_kill_assists[painter] += 1;
    }
    int against = a.n.own_team_counts_against ? hits - own_hits : hits;
    a.tally_dealt_damage[shooter] += damage * static_cast<float>(against);
    a.tally_kills[shooter] += a.n.own_team_counts_against ? kills - own_kills : kills;
    a.tally_friendly_damage[shooter] += damage * static_cast<float>(own_hits);
    a.tally_friendly_kills[shooter] += own_kills;
    a.tally_projectile_hits[shooter] += hits;
    if (a.n.effective_damage) {
      a.tally_effective_damage[shooter] += on_enemies;
      a.tally_friendly_effective_damage[shooter] += on_friends;
    }
  }
}

// Damage every cell whose centre lies within the splash radius (docs/spec/rules.md 6.8 step 2).
HD void blast_voxels(const Arena& a, int weapon, Vec point) {
  float radius = a.rules_splash_radius[weapon], amount = a.rules_damage[weapon] * a.rules_splash_scale[weapon];
  int lo[3] = {down(point.x - radius), down(point.y - radius), down(point.z - radius)};
  int hi[3] = {up(point.x + radius), up(point.y + radius), up(point.z + radius)};
  for (int x = lo[0]; x < hi[0]; ++x)
    for (int y = lo[1]; y < hi[1]; ++y)
      for (int z = lo[2]; z < hi[2]; ++z) {
        Vec from = {static_cast<float>(x) + 0.5f - point.x, static_cast<float>(y) + 0.5f - point.y,
                    static_cast<float>(z) + 0.5f - point.z};
        if (length(from) <= radius) damage_cell(a, x, y, z, amount);
      }
}

// An impact with all that follows from it, in the order of docs/spec/rules.md 6.7.
HD void strike(const Arena& a, const Impact& e, const float* rolls) {
  if (e.struck) damage_cell(a, e.x, e.y, e.z, a.rules_damage[e.weapon]);
  bool smoke = e.weapon == SMOKE;
  bool hit = e.direct && !(a.n.smoke_opens && smoke);  // a shell opens at a mech, and that is all (Q19)
  Vec centre = e.direct ? where(a, e.victim) : e.point;
  int dead = hit && direct_hit(a, e) ? e.victim : -1;
  if (smoke) open_cloud(a, e.shooter, centre);
  bool explodes = !smoke && a.rules_splash_radius[e.weapon] > 0;
  splash(a, e, centre, explodes, dead, rolls);
  if (!explodes) return;
  blast_voxels(a, e.weapon, centre);
  a.tally_explosions[e.shooter] += 1;
}

}  // namespace echelon
