// The voxels of an arena: damage, wrecks, boxes and rays (docs/spec/rules.md 2.3 to 2.5, 3.1, 3.2, 8.7).
#pragma once

#include "arena.h"

namespace echelon {

HD bool inside(const Arena& a, int x, int y, int z) {
  return x >= 0 && x < a.n.size_x && y >= 0 && y < a.n.size_y && z >= 0 && z < a.n.size_z;
}

// Material of the cell under the centre of a mech's feet; SOLID outside the map (docs/spec/rules.md 2.3, 8.2).
HD int foot_material(const Arena& a, int mech) {
  Vec p = where(a, mech);
  int x = static_cast<int>(p.x), y = static_cast<int>(p.y), z = static_cast<int>(p.z - a.rules_half[3 * mech + 2]);
  return inside(a, x, y, z) ? a.grid_material[(z * a.n.size_y + y) * a.n.size_x + x] : SOLID;
}

// Damage one cell (docs/spec/rules.md 2.5).
HD void damage_cell(const Arena& a, int x, int y, int z, float amount) {
  if (!inside(a, x, y, z)) return;
  int column = y * a.n.size_x + x, voxel = z * a.n.size_x * a.n.size_y + column;
  int material = a.grid_material[voxel];
  if (material == AIR || material == REINFORCED) return;
  if (a.n.true_voxel_hp && !(amount > 0 && material != DIRT && material != LAVA && material != WATER)) return;
  int32_t hp = a.grid_hp[voxel] - static_cast<int32_t>(rintf(amount));
  a.grid_hp[voxel] = static_cast<int16_t>(maximum(hp, 0));
  if (hp > 0) return;
  uint32_t bit = 1u << z, shift = static_cast<uint32_t>(minimum(material, 31));
  a.grid_material[voxel] = AIR;
  if ((COLLIDES >> shift) & 1u) a.grid_collides[column] -= bit;
  if ((OPAQUE >> shift) & 1u) a.grid_opaque[column] -= bit;
}

HD uint32_t mask_below(int level) {
  return level >= 32 ? 0xFFFFFFFFu : (level <= 0 ? 0u : (1u << level) - 1u);
}

// BoxHitsWorld (docs/spec/rules.md 2.4).
HD bool box_hits(const Arena& a, Vec lo, Vec hi) {
  if (lo.z < 0) return true;
  int x0 = maximum(down(lo.x), 0), x1 = minimum(up(hi.x), a.n.size_x);
  int y0 = maximum(down(lo.y), 0), y1 = minimum(up(hi.y), a.n.size_y);
  uint32_t levels = mask_below(minimum(up(hi.z), a.n.size_z)) & ~mask_below(maximum(down(lo.z), 0));
  for (int y = y0; y < y1; ++y)
    for (int x = x0; x < x1; ++x)
      if (a.grid_collides[y * a.n.size_x + x] & levels) return true;
  return false;
}

// ---- wrecks --------------------------------------------------------------------------------------------------------------

HD uint32_t crc_fed(uint32_t crc, uint8_t byte) {
  crc ^= byte;
  for (int bit = 0; bit < 8; ++bit) crc = crc & 1u ? 0xEDB88320u ^ (crc >> 1) : crc >> 1;
  return crc;
}

HD uint32_t crc_fed_number(uint32_t crc, int number) {
  crc = crc_fed(crc, ':');
  int power = 1;
  while (number / power >= 10) power *= 10;
  for (; power > 0; power /= 10) crc = crc_fed(crc, static_cast<uint8_t>('0' + number / power % 10));
  return crc;
}

// Turn the AIR and DIRT cells of a dead mech's box into debris (docs/spec/rules.md 8.7), but not under the boxes of living mechs
// and of those that died in the same loop but later in roster order (Q25): `unburied`, null for none.
HD void place_wreck(const Arena& a, int mech, const bool* unburied, const float* rolls) {
  Vec centre = where(a, mech), half = load(a.rules_half, mech), low = centre - half, high = centre + half;
  int lo[3] = {maximum(down(low.x), 0), maximum(down(low.y), 0), maximum(down(low.z), 0)};
  int hi[3] = {minimum(up(high.x), a.n.size_x), minimum(up(high.y), a.n.size_y), minimum(up(high.z), a.n.size_z)};
  float roll;
  if (rolls) {
    roll = rolls[mech];
  } else {
    uint32_t crc = a.tables_wreck_head[mech];
    for (int number : lo) crc = crc_fed_number(crc, number);
    for (int number : hi) crc = crc_fed_number(crc, number);
    roll = static_cast<float>(crc ^ 0xFFFFFFFFu) / 4294967296.0f;
  }
  bool solid = roll < a.rules_solid_wreck_probability[mech];
  uint8_t debris = solid ? SOLID_DEBRIS : DEBRIS_FIELD;
  for (int z = lo[2]; z < hi[2]; ++z)
    for (int y = lo[1]; y < hi[1]; ++y)
      for (int x = lo[0]; x < hi[0]; ++x) {
        int column = y * a.n.size_x + x, voxel = z * a.n.size_x * a.n.size_y + column;
        int material = a.grid_material[voxel];
        if (material != AIR && material != DIRT) continue;
        bool covered = false;
        float cx = static_cast<float>(x), cy = static_cast<float>(y), cz = static_cast<float>(z);
        for (int o = 0; o < a.n.mechs && !covered; ++o) {
          if (!(a.mechs_alive[o] || (unburied && unburied[o] && o > mech))) continue;
          Vec p = where(a, o), h = load(a.rules_half, o), l = p - h, u = p + h;
          covered = cx < u.x && cy < u.y && cz < u.z && cx + 1.0f > l.x && cy + 1.0f > l.y && cz + 1.0f > l.z;
        }
        if (covered) continue;
        a.grid_material[voxel] = debris;
        if (a.n.true_voxel_hp) a.grid_hp[voxel] = solid ? SOLID_DEBRIS_HP : DEBRIS_FIELD_HP;
        a.grid_collides[column] += 1u << z;
        a.grid_opaque[column] += 1u << z;
      }
}

// ---- rays ----------------------------------------------------------------------------------------------------------------

struct Ray {
  bool blocked, struck;
  int x, y, z;  // the cell where it ended
};

HD bool opaque_at(const Arena& a, int x, int y, int z) {
  return inside(a, x, y, z) && ((a.grid_opaque[y * a.n.size_x + x] >> z) & 1u);
}

// Per axis: the ray parameter of the next border, and between borders.
HD void borders(float start, float end, float& tau, float& delta) {
  float d = end - start, cell = floorf(start);
  delta = d == 0 ? F(1e30) : 1.0f / fabsf(d);
  tau = d > 0 ? (cell + 1.0f - start) * delta : (d < 0 ? (start - cell) * delta : F(1e30));
}

// The traversal of docs/spec/rules.md 3.1. A ray that skips its goal runs on to the first opaque cell or the border (Q9).
HD Ray walk(const Arena& a, Vec start, Vec end, bool include_end) {
  int x = down(start.x), y = down(start.y), z = down(start.z);
  int gx = down(end.x), gy = down(end.y), gz = down(end.z);
  Vec d = end - start;
  if (!(d.x * d.x + d.y * d.y + d.z * d.z > F(1e-18))) return {false, false, x, y, z};
  if (x == gx && y == gy && z == gz) {
    bool solid = include_end && opaque_at(a, x, y, z);
    return {solid, solid, x, y, z};
  }
  int sx = (d.x > 0) - (d.x < 0), sy = (d.y > 0) - (d.y < 0), sz = (d.z > 0) - (d.z < 0);
  float tx, ty, tz, dx, dy, dz;
  borders(start.x, end.x, tx, dx);
  borders(start.y, end.y, ty, dy);
  borders(start.z, end.z, tz, dz);
  for (;;) {
    if (tz <= minimum(tx, ty)) {
      z += sz;
      tz += dz;
    } else if (ty <= tx) {
      y += sy;
      ty += dy;
    } else {
      x += sx;
      tx += dx;
    }
    bool goal = x == gx && y == gy && z == gz;
    if ((include_end || !goal) && opaque_at(a, x, y, z)) return {true, true, x, y, z};
    if (goal) return {false, false, x, y, z};
    if (!inside(a, x, y, z)) return {true, false, x, y, z};
  }
}

// Whether no living cloud touches the segment (docs/spec/rules.md 3.2).
HD bool smoke_clear(const Arena& a, Vec start, Vec end) {
  Vec d = end - start;
  float length2 = d.x * d.x + d.y * d.y + d.z * d.z;
  if (length2 < F(1e-9)) return true;
  for (int cloud = 0; cloud < a.n.clouds * a.n.mechs; ++cloud) {
    if (a.smoke_life[cloud] <= 0) continue;
    Vec o = load(a.smoke_position, cloud) - start;
    float t = clip(dot(o, d) / maximum(length2, F(1e-9)), 0.0f, 1.0f);
    Vec q = {o.x - t * d.x, o.y - t * d.y, o.z - t * d.z};
    if (dot(q, q) <= F(k::SMOKE_CLOUD_RADIUS * k::SMOKE_CLOUD_RADIUS)) return false;
  }
  return true;
}

// Whether one mech sees another now.
HD bool sees(const Arena& a, int viewer, int target) {
  Vec from = where(a, viewer), to = where(a, target);
  return smoke_clear(a, from, to) && !walk(a, from, to, false).blocked;
}

}  // namespace echelon
