// One arena as the phases see it: pointers to its rows, the rules, and a few vector helpers.
//
// A phase is written as a plain loop over the mechs of one arena. A CPU runs one arena after the other, a GPU one on each thread.
// Sums and products stand in the order of the JAX code, and the compiler may not contract them, so that both round alike.
#pragma once

#include <cmath>
#include <cstdint>

#include "fields.h"
#include "generated.h"  // constants, materials and weapons, written by echelon_jax/native/build.py

#ifdef __CUDACC__
#define HD __host__ __device__ inline
#else
#define HD inline
#endif

namespace echelon {

constexpr float F(double value) { return static_cast<float>(value); }

struct Numbers {
#define FIELD(name) int32_t name;
  ECHELON_NUMBERS(FIELD)
#undef FIELD
  double dt;
};

// Pointers to the arrays, each to a first row.
struct Arrays {
#define FIELD(type, group, name) type* group##_##name;
  ECHELON_STATE(FIELD)
#undef FIELD
#define FIELD(type, group, name) const type* group##_##name;
  ECHELON_INPUT(FIELD)
  ECHELON_SHARED(FIELD)
#undef FIELD
  Numbers n;
};

// All arenas: how long a row of each array is.
struct Batch : Arrays {
#define FIELD(type, group, name) int32_t row_##group##_##name;
  ECHELON_STATE(FIELD)
  ECHELON_INPUT(FIELD)
#undef FIELD
};

// One arena: its own rows; what all arenas share is the batch's.
struct Arena : Arrays {
  float dt;

  HD Arena(const Batch& batch, int64_t index) : Arrays(batch), dt(F(batch.n.dt)) {
#define FIELD(type, group, name) group##_##name += index * batch.row_##group##_##name;
    ECHELON_STATE(FIELD)
    ECHELON_INPUT(FIELD)
#undef FIELD
  }
};

struct Vec {
  float x, y, z;
};

HD Vec operator+(Vec a, Vec b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
HD Vec operator-(Vec a, Vec b) { return {a.x - b.x, a.y - b.y, a.z - b.z}; }
HD Vec operator*(float s, Vec a) { return {s * a.x, s * a.y, s * a.z}; }
HD Vec operator/(Vec a, float s) { return {a.x / s, a.y / s, a.z / s}; }
HD float dot(Vec a, Vec b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
HD float length(Vec a) { return sqrtf(dot(a, a)); }
HD float maximum(float a, float b) { return a > b ? a : b; }
HD float minimum(float a, float b) { return a < b ? a : b; }
HD float clip(float v, float lo, float hi) { return minimum(maximum(v, lo), hi); }
HD int32_t maximum(int32_t a, int32_t b) { return a > b ? a : b; }
HD int32_t minimum(int32_t a, int32_t b) { return a < b ? a : b; }
HD int32_t down(float v) { return static_cast<int32_t>(floorf(v)); }
HD int32_t up(float v) { return static_cast<int32_t>(ceilf(v)); }

HD Vec load(const float* array, int item) { return {array[3 * item], array[3 * item + 1], array[3 * item + 2]}; }
HD void store(float* array, int item, Vec v) {
  array[3 * item] = v.x;
  array[3 * item + 1] = v.y;
  array[3 * item + 2] = v.z;
}

HD Vec where(const Arena& a, int mech) { return load(a.mechs_position, mech); }
HD bool enemies(const Arena& a, int one, int other) { return a.tables_team[one] != a.tables_team[other]; }
HD bool same_pack(const Arena& a, int one, int other) {
  return !enemies(a, one, other) && a.tables_pack[one] == a.tables_pack[other];
}
HD bool shut_down(const Arena& a, int mech) { return a.mechs_heat[mech] > a.rules_heat_cap[mech]; }

// Whether a mech carries a weapon and its trigger is pressed (docs/spec/rules.md 5.2).
HD bool pressed(const Arena& a, int mech, int weapon) {
  switch (a.tables_trigger[weapon * a.n.mechs + mech]) {
    case PRIMARY: return a.commands_primary[mech];
    case SECONDARY: return a.commands_secondary[mech];
    case TERTIARY: return a.commands_tertiary[mech];
    case SPECIAL: return a.commands_special[mech];
    default: return false;
  }
}

// The rear-arc damage multiplier (docs/spec/rules.md 5.5).
HD float rear_multiplier(float target_yaw, Vec target, Vec origin) {
  float vx = target.x - origin.x, vy = target.y - origin.y;
  float far = sqrtf(vx * vx + vy * vy);
  float c = (cosf(target_yaw) * vx + sinf(target_yaw) * vy) / maximum(far, F(1e-6));
  return far >= F(1e-6) && c > F(k::REAR_ARC_COSINE) ? F(k::REAR_ARC_MULTIPLIER) : 1.0f;
}

// Whether a hit at height z is on the legs (docs/spec/rules.md 5.7).
HD bool is_leg_hit(float z, float centre_z, float half_z) {
  return z < (centre_z - half_z) + F(k::LEG_HEIGHT_FRACTION) * (2.0f * half_z);
}

// Rank of a mech in grid order: ascending (cell x, cell y, insertion index) (docs/spec/rules.md 2.6).
HD int32_t grid_major(const Arena& a, int mech) {
  Vec p = where(a, mech);
  return static_cast<int32_t>(p.x / F(k::GRID_CELL)) * 4096 + static_cast<int32_t>(p.y / F(k::GRID_CELL));
}
HD int32_t grid_rank(const Arena& a, int mech) {
  int32_t mine = grid_major(a, mech), rank = 0;
  for (int other = 0; other < a.n.mechs; ++other) {
    int32_t theirs = grid_major(a, other);
    rank += theirs < mine || (theirs == mine && a.mechs_insertion_index[other] < a.mechs_insertion_index[mech]);
  }
  return rank;
}

// Remember where damage came from, if that is far enough to tell (docs/spec/rules.md 5.7, 6.7, 6.8).
HD void turn_to(const Arena& a, int mech, Vec from) {
  float far = length(from);
  if (far > F(0.1)) {
    store(a.tally_damage_direction, mech, from / maximum(far, F(1e-9)));
    a.tally_has_damage_direction[mech] = true;
  }
}

// A hit on an enemy for the modern reward: at most what the target had left (E21, E22).
HD void count_hit(const Arena& a, int shooter, int painter, float damage, float hp, bool killed) {
  if (!a.n.effective_damage) return;
  a.tally_effective_damage[shooter] += minimum(damage, maximum(hp, 0.0f));
  if (painter >= 0 && killed) a.tally_kill_assists[painter] += 1;
}

}  // namespace echelon
