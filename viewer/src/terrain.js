// The voxel map as greedy-meshed chunks: faces of one material and one shading merge into rectangles. Destroyed voxels
// change the store, and the chunks they touch are meshed again.
import * as THREE from "three";
import { lower } from "./game.js";
import { MATERIAL } from "./look.js";

const CHUNK = 20;
const TILE_RISE = 0.06;
const LAYERS = ["solid", "clear", "tiles", "lava", "water"];
const KIND = MATERIAL.map((m) => m.draw);
const COLOUR = MATERIAL.map((m) => new THREE.Color(m.colour ?? "#000"));
const SHADE = [0.55, 0.72, 0.87, 1.0]; // by the number of free neighbours of a corner
// Axes d (normal), u, v of the three face directions.
const FACES = [
  [0, 1, 2],
  [1, 2, 0],
  [2, 0, 1],
];

export class Terrain {
  constructor(game, scene) {
    this.game = game;
    this.size = game.size;
    this.cells = game.arrays.material.data.slice();
    this.edits = game.arrays.edit_time.data;
    this.#undo();
    this.applied = 0;
    this.dirty = new Set();
    this.group = new THREE.Group();
    scene.add(this.group);
    this.time = { value: 0 };
    this.solid = grained(new THREE.MeshLambertMaterial({ vertexColors: true }), this.time, 1);
    this.clear = new THREE.MeshLambertMaterial({ vertexColors: true, transparent: true, opacity: 0.38, depthWrite: false });
    this.tiles = grained(new THREE.MeshLambertMaterial({ vertexColors: true }), this.time, 1);
    this.lava = grained(new THREE.MeshBasicMaterial({ vertexColors: true }), this.time, 2);
    this.water = grained(new THREE.MeshLambertMaterial({ vertexColors: true }), this.time, 3);
    this.across = Math.ceil(this.size.x / CHUNK);
    this.down = Math.ceil(this.size.y / CHUNK);
    this.chunks = Array.from({ length: this.across * this.down }, () => ({}));
    for (let c = 0; c < this.chunks.length; c++) this.#mesh(c);
  }

  /** The material that each edit replaced, so that time can run backwards. */
  #undo() {
    const voxel = this.game.arrays.edit_voxel.data;
    const material = this.game.arrays.edit_material.data;
    const cells = this.cells.slice();
    this.before = new Uint8Array(voxel.length);
    for (let i = 0; i < voxel.length; i++) {
      this.before[i] = cells[voxel[i]];
      cells[voxel[i]] = material[i];
    }
  }

  at(x, y, z) {
    const { size } = this;
    if (x < 0 || y < 0 || z < 0 || x >= size.x || y >= size.y || z >= size.z) return 0;
    return this.cells[(z * size.y + y) * size.x + x];
  }

  /** Whether a cell darkens the corners beside it and hides faces behind it; the ground below the map does. */
  #full(x, y, z) {
    if (z < 0) return x >= 0 && y >= 0 && x < this.size.x && y < this.size.y;
    return KIND[this.at(x, y, z)] === "block";
  }

  /** Brings the map to time t; meshes at most `budget` chunks again. Returns whether anything is left to mesh. */
  seek(t, budget = 4) {
    this.time.value = 0.05 * t;
    const target = lower(this.edits, t + 1e-6);
    const voxel = this.game.arrays.edit_voxel.data;
    const material = this.game.arrays.edit_material.data;
    for (; this.applied < target; this.applied++) this.#put(voxel[this.applied], material[this.applied]);
    for (; this.applied > target; this.applied--) this.#put(voxel[this.applied - 1], this.before[this.applied - 1]);
    let done = 0;
    for (const chunk of this.dirty) {
      if (done++ >= budget) break;
      this.#mesh(chunk);
      this.dirty.delete(chunk);
    }
    return this.dirty.size > 0;
  }

  #put(voxel, material) {
    this.cells[voxel] = material;
    const x = voxel % this.size.x;
    const y = Math.floor(voxel / this.size.x) % this.size.y;
    for (const dx of [-1, 1]) {
      for (const dy of [-1, 1]) {
        const cx = Math.floor((x + dx) / CHUNK);
        const cy = Math.floor((y + dy) / CHUNK);
        if (cx >= 0 && cy >= 0 && cx < this.across && cy < this.down) this.dirty.add(cy * this.across + cx);
      }
    }
  }

  #mesh(c) {
    const chunk = this.chunks[c];
    const x0 = (c % this.across) * CHUNK;
    const y0 = Math.floor(c / this.across) * CHUNK;
    const low = [x0, y0, 0];
    const high = [Math.min(x0 + CHUNK, this.size.x), Math.min(y0 + CHUNK, this.size.y), this.size.z];
    const parts = Object.fromEntries(LAYERS.map((name) => [name, new Faces()]));
    for (const [d, u, v] of FACES) for (const sign of [1, -1]) this.#sweep(low, high, d, u, v, sign, parts);
    this.#tiles(low, high, parts);
    for (const name of LAYERS) {
      chunk[name]?.geometry.dispose();
      if (chunk[name]) this.group.remove(chunk[name]);
      chunk[name] = null;
      if (!parts[name].index.length) continue;
      const mesh = new THREE.Mesh(parts[name].geometry(), this[name]);
      mesh.castShadow = name === "solid";
      mesh.receiveShadow = name !== "clear" && name !== "lava";
      mesh.matrixAutoUpdate = false;
      chunk[name] = mesh;
      this.group.add(mesh);
    }
  }

  /** Faces of one direction, layer by layer: a mask of (material, shading), then rectangles of equal mask. */
  #sweep(low, high, d, u, v, sign, parts) {
    const width = high[u] - low[u];
    const height = high[v] - low[v];
    const mask = new Int32Array(width * height);
    const cell = [0, 0, 0];
    const beside = [0, 0, 0];
    for (let layer = low[d]; layer < high[d]; layer++) {
      let any = false;
      for (let j = 0; j < height; j++) {
        for (let i = 0; i < width; i++) {
          cell[d] = layer;
          cell[u] = low[u] + i;
          cell[v] = low[v] + j;
          beside[0] = cell[0];
          beside[1] = cell[1];
          beside[2] = cell[2];
          beside[d] += sign;
          const material = this.at(cell[0], cell[1], cell[2]);
          const kind = KIND[material];
          let key = 0;
          if ((kind === "block" || kind === "clear") && !this.#hidden(kind, beside)) {
            key = 1 + material * 256 + (kind === "block" ? this.#corners(beside, u, v) : 255);
            any = true;
          }
          mask[j * width + i] = key;
        }
      }
      if (any) merge(mask, width, height, (i, j, w, h, key) => {
        const material = (key - 1) >> 8;
        const faces = KIND[material] === "clear" ? parts.clear : parts.solid;
        const corner = [0, 0, 0];
        corner[d] = layer + (sign > 0 ? 1 : 0);
        corner[u] = low[u] + i;
        corner[v] = low[v] + j;
        faces.add(corner, d, u, v, w, h, sign, COLOUR[material], (key - 1) & 255);
      });
    }
  }

  #hidden(kind, [x, y, z]) {
    if (z < 0 || this.#full(x, y, z)) return true;
    return kind === "clear" && KIND[this.at(x, y, z)] === "clear";
  }

  /** Two bits per corner of the face towards `beside`: how free its neighbours are (ambient occlusion). */
  #corners(beside, u, v) {
    const full = (du, dv) => {
      const c = [...beside];
      c[u] += du;
      c[v] += dv;
      return this.#full(c[0], c[1], c[2]) ? 1 : 0;
    };
    const west = full(-1, 0);
    const east = full(1, 0);
    const south = full(0, -1);
    const north = full(0, 1);
    const corner = (a, b, both) => (a && b ? 0 : 3 - a - b - both);
    return (
      corner(west, south, full(-1, -1)) |
      (corner(east, south, full(1, -1)) << 2) |
      (corner(east, north, full(1, 1)) << 4) |
      (corner(west, north, full(-1, 1)) << 6)
    );
  }

  /** Lava, water and dirt do not stand in the way: flat tiles at the foot of their cell. */
  #tiles(low, high, parts) {
    const width = high[0] - low[0];
    const height = high[1] - low[1];
    const mask = new Int32Array(width * height);
    for (let z = 0; z < high[2]; z++) {
      let any = false;
      for (let j = 0; j < height; j++) {
        for (let i = 0; i < width; i++) {
          const cell = [low[0] + i, low[1] + j, z];
          const material = this.at(...cell);
          const drawn = KIND[material] === "tile";
          mask[j * width + i] = drawn ? 1 + material * 256 + this.#corners(cell, 0, 1) : 0;
          any ||= drawn;
        }
      }
      if (any) merge(mask, width, height, (i, j, w, h, key) => {
        const material = (key - 1) >> 8;
        const faces = parts[MATERIAL[material].layer];
        faces.add([low[0] + i, low[1] + j, z + TILE_RISE], 2, 0, 1, w, h, 1, COLOUR[material], (key - 1) & 255);
      });
    }
  }

  /** Colours of the map from above, brighter where it is higher, as RGBA rows from y = 0; for the minimap. */
  picture() {
    const { size } = this;
    const pixels = new Uint8ClampedArray(4 * size.x * size.y);
    const ground = new THREE.Color("#2c3440");
    const colour = new THREE.Color();
    for (let y = 0; y < size.y; y++) {
      for (let x = 0; x < size.x; x++) {
        let z = size.z - 1;
        while (z >= 0 && !this.at(x, y, z)) z--;
        colour.copy(ground);
        if (z >= 0) colour.copy(COLOUR[this.at(x, y, z)]).multiplyScalar(0.55 + 0.45 * Math.min(1, z / 10));
        const hex = colour.getHex();
        const at = 4 * ((size.y - 1 - y) * size.x + x);
        pixels[at] = hex >> 16;
        pixels[at + 1] = (hex >> 8) & 255;
        pixels[at + 2] = hex & 255;
        pixels[at + 3] = 255;
      }
    }
    return new ImageData(pixels, size.x, size.y);
  }
}

const NOISE = `
float grain(vec3 p) {
  p = fract(p * vec3(0.1031, 0.1030, 0.0973));
  p += dot(p, p.yxz + 33.33);
  return fract((p.x + p.y) * p.z);
}
float waves(vec2 p) {
  return sin(p.x * 1.7 + uTime) + sin(p.y * 2.3 - 0.8 * uTime) + sin((p.x + p.y) * 1.1 + 0.6 * uTime);
}`;
const LOOKS = {
  1: `
    vec3 cell = floor(vWorld - 0.5 * vFace);
    float far = clamp(length(vViewPosition) / 90.0, 0.0, 1.0);
    float rough = 0.93 + 0.14 * grain(cell + 7.0);
    vec3 inside = abs(fract(vWorld) - 0.5);
    vec3 flat3 = inside * (1.0 - abs(vFace));
    float edge = max(flat3.x, max(flat3.y, flat3.z));
    float line = smoothstep(0.44, 0.5, edge) * (1.0 - far);
    diffuseColor.rgb *= rough * (1.0 - 0.17 * line);`,
  2: `
    float glow = 0.5 + 0.17 * waves(vWorld.xy * 1.3);
    float crust = smoothstep(0.35, 0.75, grain(floor(vWorld * 2.0)) * 0.55 + glow * 0.6);
    diffuseColor.rgb = mix(vec3(0.16, 0.02, 0.01), mix(diffuseColor.rgb, vec3(1.0, 0.55, 0.12), 0.5 * glow), crust);`,
  3: `
    float w = waves(vWorld.xy * 1.5);
    diffuseColor.rgb *= 0.95 + 0.10 * w;
    diffuseColor.rgb += 0.10 * smoothstep(1.6, 2.6, w);`,
};

/** Adds to a material what makes it look built of voxels, from the place alone: it costs no triangles. */
function grained(material, time, look) {
  material.onBeforeCompile = (shader) => {
    shader.uniforms.uTime = time;
    shader.vertexShader = shader.vertexShader
      .replace("#include <common>", "#include <common>\nvarying vec3 vWorld;\nvarying vec3 vFace;")
      .replace("#include <begin_vertex>", "#include <begin_vertex>\nvWorld = position;\nvFace = normal;");
    shader.fragmentShader = shader.fragmentShader
      .replace("#include <common>", `#include <common>\nvarying vec3 vWorld;\nvarying vec3 vFace;\nuniform float uTime;\n${NOISE}`)
      .replace("#include <color_fragment>", `#include <color_fragment>\n{${LOOKS[look]}\n}`);
  };
  material.customProgramCacheKey = () => `grained-${look}`;
  return material;
}

/** Calls visit(i, j, width, height, key) for rectangles that cover the non-zero cells of a mask, and clears it. */
function merge(mask, width, height, visit) {
  for (let j = 0; j < height; j++) {
    for (let i = 0; i < width; ) {
      const key = mask[j * width + i];
      if (!key) {
        i++;
        continue;
      }
      let w = 1;
      while (i + w < width && mask[j * width + i + w] === key) w++;
      let h = 1;
      grow: for (; j + h < height; h++) {
        for (let k = 0; k < w; k++) if (mask[(j + h) * width + i + k] !== key) break grow;
      }
      for (let b = 0; b < h; b++) mask.fill(0, (j + b) * width + i, (j + b) * width + i + w);
      visit(i, j, w, h, key);
      i += w;
    }
  }
}

/** Rectangles collected into one geometry. */
class Faces {
  constructor() {
    this.position = [];
    this.normal = [];
    this.colour = [];
    this.index = [];
  }

  add(corner, d, u, v, w, h, sign, colour, shades) {
    const first = this.position.length / 3;
    const normal = [0, 0, 0];
    normal[d] = sign;
    const shade = [0, 1, 2, 3].map((k) => SHADE[(shades >> (2 * k)) & 3]);
    const steps = [[0, 0], [w, 0], [w, h], [0, h]];
    steps.forEach(([a, b], k) => {
      const point = [...corner];
      point[u] += a;
      point[v] += b;
      this.position.push(...point);
      this.normal.push(...normal);
      this.colour.push(colour.r * shade[k], colour.g * shade[k], colour.b * shade[k]);
    });
    // The diagonal runs between the brighter corners, so that the shading does not show the triangles.
    const turned = shade[0] + shade[2] < shade[1] + shade[3];
    const order = turned ? [1, 2, 3, 1, 3, 0] : [0, 1, 2, 0, 2, 3];
    if (sign < 0) order.reverse();
    for (const k of order) this.index.push(first + k);
  }

  geometry() {
    const geometry = new THREE.BufferGeometry();
    geometry.setAttribute("position", new THREE.Float32BufferAttribute(this.position, 3));
    geometry.setAttribute("normal", new THREE.Float32BufferAttribute(this.normal, 3));
    geometry.setAttribute("color", new THREE.Float32BufferAttribute(this.colour, 3));
    geometry.setIndex(this.index);
    return geometry;
  }
}
