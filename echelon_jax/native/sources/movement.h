// Movement: rotation, velocity and collisions of the living mechs in their drawn order (docs/spec/rules.md 7).
#pragma once

#include "voxels.h"

namespace echelon {

// New yaw and the velocity before collisions (7.1 to 7.3).
HD void steer(const Arena& a, int m) {
  bool fallen = a.mechs_fallen[m] > 0, off = shut_down(a, m), legged = a.mechs_leg_hp[m] <= 0;
  float forward = 0, strafe = 0, lift = 0, turn = 0;
  if (!fallen) {
    forward = a.commands_throttle[4 * m];
    strafe = a.commands_throttle[4 * m + 1];
    lift = a.commands_throttle[4 * m + 2];
    turn = a.commands_throttle[4 * m + 3];
  }
  const float pi = F(3.141592653589793), round = F(2.0 * 3.141592653589793);
  float yaw = a.mechs_yaw[m];
  if (!fallen && !off) {
    float turned = yaw + turn * a.rules_max_yaw_rate[m] * a.dt;
    yaw = turned - round * floorf((turned + pi) / round);
  }
  float overdrive = maximum(sqrtf(forward * forward + strafe * strafe), 1.0f);
  forward = forward / overdrive;
  strafe = strafe / overdrive;
  float speed = a.rules_max_speed[m] * (legged ? F(k::LEGGED_SPEED_MULTIPLIER) : 1.0f);
  speed = speed * (foot_material(a, m) == WATER ? F(k::WATER_SPEED_MULTIPLIER) : 1.0f);
  float jet = lift * a.rules_max_jet_accel[m] * (legged ? F(k::LEGGED_JET_MULTIPLIER) : 1.0f);
  Vec v = load(a.mechs_velocity, m);
  if (!off) {
    float c = cosf(yaw), s = sinf(yaw);
    v.x = (c * forward - s * strafe) * speed;
    v.y = (s * forward + c * strafe) * speed;
  }
  v.z = v.z + ((off ? 0.0f : jet) - *a.rules_gravity) * a.dt;
  a.mechs_yaw[m] = yaw;
  store(a.mechs_velocity, m, F(k::VELOCITY_DAMPING) * v);
}

// Whether the box of a mech at p meets the map or another living mech.
HD bool blocked(const Arena& a, int m, Vec half, Vec p) {
  Vec lo = p - half, hi = p + half;
  if (box_hits(a, lo, hi)) return true;
  for (int o = 0; o < a.n.mechs; ++o) {
    if (o == m || !a.mechs_alive[o]) continue;
    Vec q = where(a, o), h = load(a.rules_half, o), l = q - h, u = q + h;
    if (lo.x < u.x && hi.x > l.x && lo.y < u.y && hi.y > l.y && lo.z < u.z && hi.z > l.z) return true;
  }
  return false;
}

// Forward to `next`, else one step up, else stopped. Returns whether it moved.
HD bool advance(const Arena& a, int m, Vec half, Vec& p, Vec next, bool may_step) {
  if (!blocked(a, m, half, next)) {
    p = next;
    return true;
  }
  next.z = p.z + F(k::STEP_UP_HEIGHT);
  bool fits = !a.n.ceiling || p.z + F(k::STEP_UP_HEIGHT) + half.z <= static_cast<float>(a.n.size_z);
  if (!may_step || !fits || blocked(a, m, half, next)) return false;
  p = next;
  return true;
}

HD void move_one(const Arena& a, int m) {
  steer(a, m);
  Vec old = where(a, m), p = old, v = load(a.mechs_velocity, m), half = load(a.rules_half, m);
  float map_x = static_cast<float>(a.n.size_x), map_y = static_cast<float>(a.n.size_y);
  bool may_step = fabsf(v.z) < F(k::STEP_UP_SPEED_GATE);

  Vec next = p;
  next.x = p.x + v.x * a.dt;
  if (a.n.clamp_before_collision) next.x = clip(next.x, half.x, map_x - half.x);
  if (!advance(a, m, half, p, next, may_step)) v.x = 0;

  next = p;
  next.y = p.y + v.y * a.dt;
  if (a.n.clamp_before_collision) next.y = clip(next.y, half.y, map_y - half.y);
  if (!advance(a, m, half, p, next, may_step)) v.y = 0;

  next = p;
  next.z = p.z + v.z * a.dt;
  bool free = !blocked(a, m, half, next);
  if (a.n.ceiling) free = free && (v.z <= 0 || p.z + v.z * a.dt + half.z <= static_cast<float>(a.n.size_z));
  if (free) p = next; else v.z = 0;

  // In the original the clamp comes only after all three axes (Q4).
  p.x = clip(p.x, half.x, map_x - half.x);
  p.y = clip(p.y, half.y, map_y - half.y);
  p.z = maximum(p.z, half.z);
  const float cell = F(k::GRID_CELL);
  if (static_cast<int>(p.x / cell) != static_cast<int>(old.x / cell) ||
      static_cast<int>(p.y / cell) != static_cast<int>(old.y / cell)) {
    a.mechs_insertion_index[m] = *a.state_next_insertion_index;
    *a.state_next_insertion_index += 1;
  }
  store(a.mechs_position, m, p);
  store(a.mechs_velocity, m, v);
  a.mechs_loudness[m] = a.mechs_fallen[m] > 0 ? 0.0f : length(v) * a.rules_loudness_factor[m];
}

HD void move(const Arena& a, const int32_t* order) {
  for (int turn = 0; turn < a.n.mechs; ++turn)
    if (a.mechs_alive[order[turn]]) move_one(a, order[turn]);
}

}  // namespace echelon
