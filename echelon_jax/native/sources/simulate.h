// One decision step of one arena: its substeps and their phases in order (docs/spec/rules.md 9).
#pragma once

#include "firing.h"
#include "flight.h"
#include "movement.h"
#include "upkeep.h"

namespace echelon {

HD void clear_tally(const Arena& a) {
  for (int m = 0; m < a.n.mechs; ++m) {
    a.tally_took_damage[m] = a.tally_dealt_damage[m] = a.tally_friendly_damage[m] = 0;
    a.tally_effective_damage[m] = a.tally_friendly_effective_damage[m] = 0;
    a.tally_died[m] = a.tally_was_hit[m] = a.tally_has_damage_direction[m] = false;
    a.tally_kills[m] = a.tally_assists[m] = a.tally_paints[m] = a.tally_laser_hits[m] = a.tally_missile_launches[m] = 0;
    a.tally_kinetic_fires[m] = a.tally_smoke_launches[m] = a.tally_projectile_hits[m] = a.tally_explosions[m] = 0;
    a.tally_ams_intercepts[m] = a.tally_friendly_kills[m] = a.tally_kill_assists[m] = 0;
    store(a.tally_damage_direction, m, {0.0f, 0.0f, 0.0f});
  }
}

HD void simulate(const Batch& batch, int64_t index) {
  const Arena a(batch, index);
  if (*a.arenas_resting) return;
  const int n = a.n.mechs, ams = a.n.heavies * a.n.rings * a.n.packs;
  clear_tally(a);
  for (int substep = 0; substep < a.n.substeps; ++substep) {
    const float* rolls = a.n.fair_order ? a.noise_wreck + substep * n : nullptr;
    const int32_t* fire_order = a.n.fair_order ? a.noise_fire_order + substep * n : nullptr;
    for (int cloud = 0; cloud < n * a.n.clouds; ++cloud) a.smoke_life[cloud] = maximum(a.smoke_life[cloud] - 1, 0);
    *a.state_tick += 1;
    upkeep(a, rolls);
    update_projectiles(a, a.noise_ams + substep * ams, rolls);
    fire(a, a.noise_hit_height + substep * n * HITSCAN_WEAPONS, fire_order, rolls);
    move(a, a.noise_move_order + substep * n);
  }
}

}  // namespace echelon
