// Everything that flashes, flies or burns, as a function of the moment: nothing is remembered from the frame before, so time can
// run in any direction.
import * as THREE from "three";
import { FLAG, WEAPON } from "./game.js";
import { TEAM } from "./look.js";
import { Rods, SHAPE, Sprites } from "./sprites.js";

const C = Object.fromEntries(
  Object.entries({
    white: "#ffffff",
    fire: "#ff9a3d",
    ember: "#ff5a1f",
    flame: "#ffcf5a",
    gauss: "#fff3b0",
    auto: "#ffd479",
    smoke: "#b9c2cb",
    soot: "#3c3a38",
    dust: "#8f8a82",
    paint: "#ff7bf0",
    cut: "#a8fff2",
  }).map(([name, hex]) => [name, new THREE.Color(hex)]),
);
const LASER = TEAM.map((hex) => new THREE.Color(hex).lerp(C.white, 0.25));
const CHIPS = 900;

/** A number from 0 to 1 that depends on its arguments alone. */
function chance(a, b) {
  let h = Math.imul(a ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul(b + 0x7f4a7c15, 0xc2b2ae35);
  h ^= h >>> 15;
  h = Math.imul(h, 0x2c1b3c6d);
  h ^= h >>> 13;
  return (h >>> 0) / 4294967296;
}

export class Effects {
  constructor(game, scene) {
    this.game = game;
    this.rods = new Rods(scene, 3000);
    this.haze = new Sprites(scene, 3000, { order: 4 });
    this.light = new Sprites(scene, 2500, { additive: true, order: 5 });
    this.marks = new Sprites(scene, 200, { depthTest: false, order: 9 });
    const chip = new THREE.BoxGeometry(0.32, 0.32, 0.32);
    this.chips = new THREE.InstancedMesh(chip, new THREE.MeshLambertMaterial({ color: "#8b929b" }), CHIPS);
    this.chips.frustumCulled = false;
    scene.add(this.chips);
    this.a = new THREE.Vector3();
    this.b = new THREE.Vector3();
    this.matrix = new THREE.Matrix4();
    this.turn = new THREE.Euler();
    this.lastHit = new Float32Array(game.count);
    this.pose = { x: 0, y: 0, z: 0, yaw: 0 };
  }

  update(t, poses) {
    for (const layer of [this.rods, this.haze, this.light, this.marks]) layer.clear();
    this.lastHit.fill(Infinity);
    this.#beams(t);
    this.#projectiles(t);
    this.#bursts(t);
    this.#clouds(t);
    this.#chips(t);
    this.#status(t, poses);
    for (const layer of [this.rods, this.haze, this.light, this.marks]) layer.show();
  }

  /** Where a mech's guns are at a time; `side` is -1 for the right arm. */
  #muzzle(t, m, side, out) {
    const { kind } = this.game.info(m);
    const p = this.game.pose(t, m, this.pose);
    const c = Math.cos(p.yaw);
    const s = Math.sin(p.yaw);
    const ahead = 0.55 * kind.width;
    const left = side * 0.41 * kind.width;
    return out.set(p.x + ahead * c - left * s, p.y + ahead * s + left * c, p.z + 0.13 * kind.height);
  }

  #hit(m, age) {
    if (m >= 0) this.lastHit[m] = Math.min(this.lastHit[m], age);
  }

  #beams(t) {
    const { game, a, b } = this;
    game.recent("beam", t, 5, (i, age) => {
      const e = game.event(i);
      if (e.a < 0) return;
      this.#muzzle(e.time, e.a, 1, a);
      b.set(e.x, e.y, e.z);
      const fade = 1 - age / 5;
      this.#hit(e.b, age);
      if (e.weapon === WEAPON.flamer) {
        for (let k = 0; k < 7; k++) {
          const share = (k + 0.5 * chance(i, k) + 0.15 * age) / 7;
          const wide = 0.15 + 0.5 * share;
          this.light.add(
            a.x + share * (b.x - a.x) + (chance(i, k + 9) - 0.5) * wide,
            a.y + share * (b.y - a.y) + (chance(i, k + 19) - 0.5) * wide,
            a.z + share * (b.z - a.z) + (chance(i, k + 29) - 0.5) * wide,
            wide, k < 3 ? C.flame : C.ember, 0.5 * fade, SHAPE.glow,
          );
        }
        return;
      }
      const colour = LASER[game.mechs[e.a].team];
      this.rods.add(a, b, 0.13, colour, fade);
      this.rods.add(a, b, 0.045, C.white, fade);
      this.light.add(a.x, a.y, a.z, 0.8, colour, fade, SHAPE.glow);
      this.light.add(b.x, b.y, b.z, 1.3, colour, fade, SHAPE.glow);
    });
    game.recent("paint", t, 6, (i, age) => {
      const e = game.event(i);
      this.rods.add(this.#muzzle(e.time, e.a, -1, a), b.set(e.x, e.y, e.z), 0.05, C.paint, 1 - age / 6);
    });
    game.recent("intercept", t, 6, (i, age) => {
      const e = game.event(i);
      const p = game.pose(e.time, e.a, this.pose);
      a.set(p.x, p.y, p.z + 0.5 * game.info(e.a).kind.height);
      this.rods.add(a, b.set(e.x, e.y, e.z), 0.06, C.cut, 1 - age / 6);
      this.light.add(e.x, e.y, e.z, 1 + 0.2 * age, C.cut, 1 - age / 6, SHAPE.glow);
      this.light.add(e.x, e.y, e.z, 0.6 + 0.3 * age, C.cut, 1 - age / 6, SHAPE.ring);
    });
  }

  #projectiles(t) {
    const { game, a, b } = this;
    const weapons = game.arrays.track_weapon.data;
    const points = game.arrays.track_points.data;
    game.flying(t, 14, (k, age) => {
      const weapon = weapons[k];
      const last = points[k] - 1;
      const over = age - last;
      game.trackPoint(k, age, a);
      if (weapon === WEAPON.missile) {
        for (let s = 0; s < 15; s++) {
          const at = age - s;
          if (at < 0 || at > last) continue;
          game.trackPoint(k, at, b);
          this.haze.add(b.x, b.y, b.z + 0.02 * s, 0.16 + 0.035 * s, C.smoke, 0.5 * (1 - s / 15), SHAPE.soft);
        }
        if (over <= 0) {
          this.light.add(a.x, a.y, a.z, 0.9, C.ember, 1, SHAPE.glow);
          this.light.add(a.x, a.y, a.z, 0.35, C.white, 1, SHAPE.glow);
          this.rods.add(game.trackPoint(k, age - 0.7, b), a, 0.09, C.fire, 1);
        }
      } else if (weapon === WEAPON.smoke) {
        if (over <= 0) this.haze.add(a.x, a.y, a.z, 0.35, C.smoke, 1, SHAPE.soft);
      } else {
        const slug = weapon === WEAPON.gauss;
        const colour = slug ? C.gauss : C.auto;
        const length = slug ? 3 : 1;
        for (let s = 0; s < (slug ? 6 : 1); s++) {
          const strength = (slug ? 1 - s / 6 : 1) * (over > 0 ? 1 - over / 6 : 1);
          if (age - s - 1 > last || (!slug && over > 0)) continue;
          game.trackPoint(k, age - (s * length) / 3, a);
          game.trackPoint(k, age - ((s + 1) * length) / 3, b);
          this.rods.add(b, a, slug ? 0.1 : 0.06, colour, strength);
        }
        if (over <= 0) this.light.add(a.x, a.y, a.z, slug ? 0.8 : 0.4, colour, 1, SHAPE.glow);
      }
    });
  }

  #bursts(t) {
    const { game } = this;
    for (const kind of ["missile", "kinetic", "smoke"]) {
      game.recent(kind, t, 4, (i, age) => {
        const e = game.event(i);
        const side = kind === "kinetic" && e.weapon === WEAPON.gauss ? -1 : 1;
        const p = this.#muzzle(e.time, e.a, side, this.a);
        this.light.add(p.x, p.y, p.z, e.weapon === WEAPON.autocannon ? 0.6 : 1.2, C.flame, 1 - age / 4, SHAPE.glow);
      });
    }
    for (const kind of ["hit", "splash"]) {
      game.recent(kind, t, 6, (i, age) => {
        const e = game.event(i);
        this.#hit(e.b, age);
        if (kind === "hit") this.light.add(e.x, e.y, e.z, 0.9 + 0.1 * age, C.flame, 1 - age / 6, SHAPE.glow);
      });
    }
    game.recent("impact", t, 8, (i, age) => {
      const e = game.event(i);
      this.light.add(e.x, e.y, e.z, 0.5, C.flame, 0.8 - age / 5, SHAPE.glow);
      this.haze.add(e.x, e.y, e.z + 0.05 * age, 0.25 + 0.07 * age, C.dust, 0.5 * (1 - age / 8), SHAPE.soft);
    });
    game.recent("explosion", t, 26, (i, age) => {
      const e = game.event(i);
      this.#explosion(i, e, age, e.amount, 26);
    });
    game.recent("kill", t, 90, (i, age) => {
      const e = game.event(i);
      const p = game.pose(e.time - 1, e.b, this.pose);
      const place = { x: p.x, y: p.y, z: p.z };
      if (age < 34) this.#explosion(i + 7000, place, age, 0.75 * game.info(e.b).kind.width + 1, 34);
      for (let k = 0; k < 16; k++) {
        const rise = (age / 90 + k / 16) % 1;
        this.haze.add(
          p.x + (chance(i, k) - 0.5) * 1.2 + rise * 1.5, p.y + (chance(i, k + 50) - 0.5) * 1.2, p.z + 7 * rise,
          0.5 + 1.5 * rise, C.soot, 0.5 * (1 - rise) * (1 - age / 90), SHAPE.soft,
        );
      }
    });
  }

  #explosion(seed, e, age, radius, life) {
    const early = Math.max(0, 1 - age / 9);
    const grow = 1 - Math.exp(-age / 3);
    this.light.add(e.x, e.y, e.z, radius * (0.7 + 0.9 * grow), C.fire, early, SHAPE.glow);
    this.light.add(e.x, e.y, e.z, radius * 0.6, C.white, Math.max(0, 1 - age / 4), SHAPE.glow);
    this.light.add(e.x, e.y, e.z, radius * (0.3 + 1.3 * grow), C.flame, 0.6 * early, SHAPE.ring);
    for (let k = 0; k < 14; k++) {
      const theta = 2 * Math.PI * chance(seed, k);
      const up = chance(seed, k + 40);
      const far = radius * grow * (0.35 + 0.65 * chance(seed, k + 80));
      const flat = Math.sqrt(Math.max(0, 1 - up * up));
      const x = e.x + far * flat * Math.cos(theta);
      const y = e.y + far * flat * Math.sin(theta);
      const z = Math.max(0.1, e.z + far * up + 0.03 * age);
      this.light.add(x, y, z, 0.45 * radius * (0.6 + 0.4 * grow), k % 2 ? C.ember : C.fire, 0.8 * early, SHAPE.glow);
      const late = age / life;
      this.haze.add(x, y, z, 0.35 * radius * (0.7 + late), C.soot, 0.42 * Math.min(1, age / 3) * (1 - late), SHAPE.soft);
    }
  }

  #clouds(t) {
    const { game } = this;
    const start = game.arrays.cloud_start.data;
    const end = game.arrays.cloud_end.data;
    const place = game.arrays.cloud_position.data;
    const radius = game.header.smoke_radius;
    for (let i = 0; i < start.length; i++) {
      if (t < start[i] || t > end[i]) continue;
      const age = t - start[i];
      const grown = 1 - Math.exp(-age / 5);
      const left = Math.min(1, (end[i] - t) / 30);
      for (let k = 0; k < 26; k++) {
        const theta = 2 * Math.PI * chance(i, k) + 0.01 * age * (chance(i, k + 100) - 0.5);
        const up = 2 * chance(i, k + 200) - 1;
        const far = radius * 0.72 * Math.cbrt(chance(i, k + 300)) * grown;
        const flat = Math.sqrt(1 - up * up);
        this.haze.add(
          place[3 * i] + far * flat * Math.cos(theta), place[3 * i + 1] + far * flat * Math.sin(theta),
          Math.max(0.3, place[3 * i + 2] + far * up), radius * (0.34 + 0.16 * chance(i, k + 400)) * (0.4 + 0.6 * grown),
          C.smoke, 0.34 * left, SHAPE.soft,
        );
      }
    }
  }

  /** Pieces of voxels that have just gone. */
  #chips(t) {
    const { game, matrix } = this;
    const { edit_time: time, edit_voxel: voxel, edit_material: material } = game.arrays;
    let shown = 0;
    let i = time.data.length;
    let low = 0;
    while (low < i) {
      const middle = (low + i) >> 1;
      if (time.data[middle] < t - 18) low = middle + 1;
      else i = middle;
    }
    for (i = low; i < time.data.length && time.data[i] <= t && shown < CHIPS; i++) {
      if (material.data[i] !== 0) continue;
      const age = t - time.data[i];
      const x = voxel.data[i] % game.size.x;
      const y = Math.floor(voxel.data[i] / game.size.x) % game.size.y;
      const z = Math.floor(voxel.data[i] / (game.size.x * game.size.y));
      for (let k = 0; k < 4 && shown < CHIPS; k++) {
        const seconds = age * 0.05;
        const vx = 6 * (chance(i, k) - 0.5);
        const vy = 6 * (chance(i, k + 10) - 0.5);
        const vz = 2 + 5 * chance(i, k + 20);
        const height = z + 0.5 + vz * seconds - 9 * seconds * seconds;
        if (height < 0.1) continue;
        this.turn.set(age * 0.5 * chance(i, k + 30), age * 0.5, 0);
        matrix.makeRotationFromEuler(this.turn);
        const size = 1 - age / 20;
        matrix.scale(this.b.set(size, size, size));
        matrix.setPosition(x + 0.5 + vx * seconds, y + 0.5 + vy * seconds, height);
        this.chips.setMatrixAt(shown++, matrix);
      }
    }
    this.chips.count = shown;
    this.chips.visible = shown > 0;
    this.chips.instanceMatrix.needsUpdate = shown > 0;
  }

  /** Paint marks, jets, and the steam of overheated mechs. */
  #status(t, poses) {
    const { game } = this;
    const frame = game.frame(t);
    for (let m = 0; m < game.count; m++) {
      if (!poses[m].shown) continue;
      const p = poses[m];
      const { kind } = game.info(m);
      if (game.value("painted", frame, m) > 0) {
        const pulse = 1 + 0.12 * Math.sin(0.5 * t);
        this.marks.add(p.x, p.y, p.z + 0.5 * kind.height + 1.9, 0.42 * pulse, C.paint, 0.95, SHAPE.mark);
      }
      if (game.flags(frame, m) & FLAG.shutdown) {
        for (let k = 0; k < 6; k++) {
          const rise = (t / 24 + k / 6) % 1;
          this.haze.add(p.x + chance(m, k) - 0.5, p.y + chance(m, k + 9) - 0.5, p.z + 0.3 * kind.height + 2 * rise,
            0.25 + 0.4 * rise, C.white, 0.4 * (1 - rise), SHAPE.soft);
        }
      }
      const up = game.arrays.velocity.data[3 * (frame * game.count + m) + 2];
      if (up > 0.8 && kind.width < 2) {
        for (let k = 0; k < 4; k++) {
          this.light.add(p.x, p.y, p.z - 0.5 * kind.height - 0.2 * k, 0.35 - 0.05 * k, C.flame, 0.7 - 0.15 * k, SHAPE.glow);
        }
      }
    }
  }
}
