// Upkeep: timers, heat, hazards and stability of every living mech (docs/spec/rules.md 8.1 to 8.4).
#pragma once

#include "voxels.h"

namespace echelon {

HD void count_down(int32_t& timer) { timer = maximum(timer - 1, 0); }

// One living mech. Returns whether it burns to death.
HD bool upkeep_of(const Arena& a, int m) {
  const double dt = a.n.dt;
  const float cap = a.rules_heat_cap[m];
  count_down(a.mechs_suppressed[m]);
  count_down(a.mechs_ams_cooldown[m]);
  count_down(a.mechs_laser_cooldown[m]);
  count_down(a.mechs_tube_cooldown[m]);
  count_down(a.mechs_kinetic_cooldown[m]);
  count_down(a.mechs_painter_cooldown[m]);
  count_down(a.mechs_painted[m]);

  // Heat of electronic warfare, then hazards (8.1, 8.2).
  float heat = a.mechs_heat[m];
  float ewar = (a.mechs_ecm_on[m] ? F(k::ECM_HEAT * dt) : 0.0f) + (a.mechs_eccm_on[m] ? F(k::ECCM_HEAT * dt) : 0.0f);
  heat = heat + (heat > cap ? 0.0f : ewar);
  int foot = foot_material(a, m);
  heat = heat + (foot == LAVA ? F(k::LAVA_HEAT * dt) : 0.0f) + (foot == DEBRIS_FIELD ? F(k::DEBRIS_HEAT * dt) : 0.0f);
  if (foot == WATER) heat = maximum(0.0f, heat - F(k::WATER_COOLING * dt));
  float burn = (foot == LAVA ? F(k::LAVA_DAMAGE * dt) : 0.0f) + (foot == DEBRIS_FIELD ? F(k::DEBRIS_DAMAGE * dt) : 0.0f);
  a.mechs_hp[m] -= burn;
  bool dies = a.mechs_hp[m] <= 0 && burn > 0;

  // Falling, standing up, regaining stability (8.3).
  bool legged = a.mechs_leg_hp[m] <= 0;
  if (a.mechs_fallen[m] > 0) {
    a.mechs_fallen[m] -= 1;
    if (a.mechs_fallen[m] == 0) a.mechs_stability[m] = F(k::STAND_UP_FRACTION * k::MAX_STABILITY);
  } else if (a.mechs_stability[m] <= 0) {
    a.mechs_fallen[m] = *a.rules_fallen_substeps;
    store(a.mechs_velocity, m, {0.0f, 0.0f, 0.0f});
  } else {
    float penalty = (legged ? F(k::LEGGED_REGEN_PENALTY) : 0.0f) +
                    (length(load(a.mechs_velocity, m)) > F(k::MOVING_SPEED_THRESHOLD) ? F(k::MOVING_REGEN_PENALTY) : 0.0f) +
                    (a.mechs_suppressed[m] > 0 ? F(k::SUPPRESSED_REGEN_PENALTY) : 0.0f);
    float regen = F(k::STABILITY_REGEN * dt) * maximum(F(k::MIN_REGEN_FACTOR), 1.0f - penalty);
    float most = legged ? F(k::MAX_STABILITY * k::LEGGED_STABILITY_MULTIPLIER) : F(k::MAX_STABILITY);
    a.mechs_stability[m] = minimum(most, a.mechs_stability[m] + regen);
  }

  // Venting, then dissipation (8.1 c, d).
  float cooling = a.rules_heat_dissipation[m] * F(dt);
  if (a.commands_vent[m] && heat <= cap) heat = maximum(0.0f, heat - F(k::VENT_MULTIPLIER) * cooling);
  a.mechs_heat[m] = maximum(0.0f, heat - cooling);
  a.tally_took_damage[m] += burn;
  return dies;
}

// The phase; `rolls` are the wreck rolls where they are drawn.
HD void upkeep(const Arena& a, const float* rolls) {
  bool dead[MAX_MECHS];
  bool any = false;
  for (int m = 0; m < a.n.mechs; ++m) {
    dead[m] = a.mechs_alive[m] && upkeep_of(a, m);
    any = any || dead[m];
  }
  if (!any) return;
  for (int m = 0; m < a.n.mechs; ++m)
    if (dead[m]) {
      a.mechs_alive[m] = false;
      a.tally_died[m] = true;
    }
  // Simultaneous deaths leave wrecks in roster order (S1).
  for (int m = 0; m < a.n.mechs; ++m)
    if (dead[m]) {
      place_wreck(a, m, dead, rolls);
      dead[m] = false;
    }
}

}  // namespace echelon
