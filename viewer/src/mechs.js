// The mechs: per class one instanced body and one instanced leg mesh, in the simulator's sizes; team by colour and by shape of the
// plate on the back. Bars for hit points, heat and stability float above, all in one draw call.
import * as THREE from "three";
import { mergeGeometries } from "three/addons/utils/BufferGeometryUtils.js";
import { FLAG } from "./game.js";
import { TEAM } from "./look.js";

const PLATE = new THREE.Color("#ffffff");
const STEEL = new THREE.Color("#8b929c");
const DARK = new THREE.Color("#3d434c");
const GLASS = new THREE.Color("#dff6ff");

function box(x, y, z, w, d, h, colour, tilt = 0) {
  const geometry = new THREE.BoxGeometry(w, d, h).toNonIndexed();
  if (tilt) geometry.rotateY(tilt);
  geometry.translate(x, y, z);
  return painted(geometry, colour);
}

function barrel(x, y, z, length, radius, colour) {
  const geometry = new THREE.CylinderGeometry(radius, radius, length, 8).rotateZ(Math.PI / 2).toNonIndexed();
  return painted(geometry.translate(x, y, z), colour);
}

function painted(geometry, colour) {
  const count = geometry.attributes.position.count;
  const colours = new Float32Array(3 * count);
  for (let i = 0; i < count; i++) colours.set([colour.r, colour.g, colour.b], 3 * i);
  geometry.setAttribute("color", new THREE.BufferAttribute(colours, 3));
  geometry.setAttribute("plate", new THREE.BufferAttribute(new Float32Array(count).fill(colour === PLATE ? 1 : 0), 1));
  geometry.deleteAttribute("uv");
  return geometry;
}

/** Parts of a body in units of its box: x ahead, y left, z up, the box's centre at 0; w and h are width and height. */
function body(name, w, h) {
  const parts = {
    scout: [
      box(0, 0, 0.2 * h, 0.62 * w, 0.5 * w, 0.26 * h, PLATE),
      box(0.26 * w, 0, 0.24 * h, 0.26 * w, 0.34 * w, 0.16 * h, GLASS, 0.25),
      box(-0.3 * w, 0, 0.22 * h, 0.16 * w, 0.4 * w, 0.2 * h, STEEL),
      box(0.02 * w, 0.36 * w, 0.18 * h, 0.36 * w, 0.14 * w, 0.12 * h, PLATE),
      box(0.02 * w, -0.36 * w, 0.18 * h, 0.36 * w, 0.14 * w, 0.12 * h, PLATE),
      barrel(0.34 * w, -0.36 * w, 0.18 * h, 0.3 * w, 0.04 * w, DARK),
      box(-0.18 * w, 0.1 * w, 0.42 * h, 0.04 * w, 0.04 * w, 0.2 * h, DARK),
      box(-0.14 * w, 0.1 * w, 0.47 * h, 0.06 * w, 0.3 * w, 0.08 * h, STEEL),
      box(0, 0, 0.03 * h, 0.34 * w, 0.4 * w, 0.1 * h, DARK),
    ],
    light: [
      box(0, 0, 0.2 * h, 0.54 * w, 0.56 * w, 0.3 * h, PLATE),
      box(0.24 * w, 0, 0.26 * h, 0.24 * w, 0.3 * w, 0.16 * h, GLASS, 0.2),
      box(-0.26 * w, 0, 0.24 * h, 0.2 * w, 0.46 * w, 0.26 * h, STEEL),
      box(0, 0.38 * w, 0.26 * h, 0.34 * w, 0.18 * w, 0.16 * h, PLATE),
      box(0, -0.38 * w, 0.26 * h, 0.34 * w, 0.18 * w, 0.16 * h, PLATE),
      box(0.1 * w, 0.4 * w, 0.1 * h, 0.5 * w, 0.12 * w, 0.12 * h, STEEL),
      box(0.1 * w, -0.4 * w, 0.1 * h, 0.5 * w, 0.12 * w, 0.12 * h, STEEL),
      barrel(0.46 * w, 0.4 * w, 0.1 * h, 0.3 * w, 0.06 * w, DARK),
      barrel(0.44 * w, -0.4 * w, 0.1 * h, 0.24 * w, 0.08 * w, DARK),
      box(0, 0, 0.02 * h, 0.36 * w, 0.42 * w, 0.1 * h, DARK),
    ],
    medium: [
      box(0, 0, 0.2 * h, 0.56 * w, 0.54 * w, 0.32 * h, PLATE),
      box(0.27 * w, 0, 0.24 * h, 0.2 * w, 0.26 * w, 0.16 * h, GLASS, 0.2),
      box(0.02 * w, 0, 0.39 * h, 0.34 * w, 0.34 * w, 0.1 * h, STEEL),
      box(-0.3 * w, 0, 0.22 * h, 0.18 * w, 0.44 * w, 0.28 * h, STEEL),
      box(0, 0.39 * w, 0.3 * h, 0.4 * w, 0.22 * w, 0.18 * h, PLATE),
      box(0, -0.39 * w, 0.3 * h, 0.4 * w, 0.22 * w, 0.18 * h, PLATE),
      box(0.08 * w, 0.41 * w, 0.12 * h, 0.5 * w, 0.16 * w, 0.14 * h, STEEL),
      box(0.08 * w, -0.41 * w, 0.12 * h, 0.5 * w, 0.16 * w, 0.14 * h, STEEL),
      barrel(0.46 * w, 0.44 * w, 0.14 * h, 0.34 * w, 0.035 * w, DARK),
      barrel(0.46 * w, 0.38 * w, 0.14 * h, 0.34 * w, 0.035 * w, DARK),
      barrel(0.44 * w, -0.41 * w, 0.12 * h, 0.3 * w, 0.06 * w, DARK),
      box(0, 0, 0.0, 0.4 * w, 0.46 * w, 0.1 * h, DARK),
    ],
    heavy: [
      box(0, 0, 0.18 * h, 0.6 * w, 0.56 * w, 0.34 * h, PLATE),
      box(0.31 * w, 0, 0.2 * h, 0.16 * w, 0.24 * w, 0.14 * h, GLASS, 0.2),
      box(0.2 * w, 0, 0.33 * h, 0.3 * w, 0.42 * w, 0.08 * h, STEEL),
      box(-0.32 * w, 0, 0.2 * h, 0.18 * w, 0.5 * w, 0.3 * h, STEEL),
      box(-0.04 * w, 0.38 * w, 0.4 * h, 0.44 * w, 0.22 * w, 0.18 * h, PLATE),
      box(-0.04 * w, -0.38 * w, 0.4 * h, 0.44 * w, 0.22 * w, 0.18 * h, PLATE),
      box(0.19 * w, 0.38 * w, 0.4 * h, 0.03 * w, 0.18 * w, 0.14 * h, DARK),
      box(0.19 * w, -0.38 * w, 0.4 * h, 0.03 * w, 0.18 * w, 0.14 * h, DARK),
      box(0.06 * w, 0.42 * w, 0.14 * h, 0.5 * w, 0.15 * w, 0.16 * h, STEEL),
      box(0.06 * w, -0.42 * w, 0.14 * h, 0.5 * w, 0.15 * w, 0.16 * h, STEEL),
      barrel(0.46 * w, -0.42 * w, 0.14 * h, 0.5 * w, 0.045 * w, DARK),
      barrel(0.4 * w, 0.42 * w, 0.14 * h, 0.28 * w, 0.07 * w, DARK),
      box(0, 0, -0.02 * h, 0.44 * w, 0.5 * w, 0.1 * h, DARK),
    ],
  };
  return mergeGeometries(parts[name] ?? parts.medium);
}

/** One leg that hangs from its hip at 0. */
function leg(w, length) {
  return mergeGeometries([
    box(0.05 * w, 0, -0.26 * length, 0.2 * w, 0.17 * w, 0.6 * length, STEEL, -0.2),
    box(0.02 * w, 0, -0.68 * length, 0.17 * w, 0.15 * w, 0.56 * length, PLATE, 0.18),
    box(0.06 * w, 0, -0.95 * length, 0.36 * w, 0.22 * w, 0.1 * length, DARK),
  ]);
}

const HIP = 0.5; // share of the height up to the hips

export class Mechs {
  constructor(game, scene) {
    this.game = game;
    const material = new THREE.MeshLambertMaterial({ vertexColors: true, flatShading: true });
    // Plates take the team's colour, the rest a hint of it.
    material.onBeforeCompile = (shader) => {
      shader.vertexShader = shader.vertexShader
        .replace("#include <common>", "#include <common>\nattribute float plate;")
        .replace("#include <color_vertex>", "vColor.rgb = color * mix(mix(vec3(1.0), instanceColor, 0.25), instanceColor, plate);");
    };
    this.team = TEAM.map((colour) => new THREE.Color(colour));
    this.kinds = game.header.classes.map((kind, c) => {
      const members = game.mechs.flatMap((mech, m) => (mech.class === c ? [m] : []));
      if (!members.length) return null;
      const bodies = new THREE.InstancedMesh(body(kind.name, kind.width, kind.height), material, members.length);
      const legs = new THREE.InstancedMesh(leg(kind.width, HIP * kind.height), material, 2 * members.length);
      for (const mesh of [bodies, legs]) {
        mesh.castShadow = mesh.receiveShadow = true;
        mesh.frustumCulled = false;
        mesh.instanceMatrix.setUsage(THREE.DynamicDrawUsage);
        mesh.setColorAt(0, this.team[0]);
        scene.add(mesh);
      }
      return { kind, members, bodies, legs };
    });
    this.poses = game.mechs.map(() => ({ x: 0, y: 0, z: 0, yaw: 0, shown: false }));
    this.bars = new Bars(game, scene);
    this.base = new THREE.Matrix4();
    this.part = new THREE.Matrix4();
    this.swing = new THREE.Matrix4();
    this.colour = new THREE.Color();
  }

  update(t) {
    const { game } = this;
    const frame = game.frame(t);
    for (let m = 0; m < game.count; m++) {
      game.pose(t, m, this.poses[m]);
      this.poses[m].shown = game.alive(t, m);
    }
    for (const group of this.kinds) if (group) this.#group(group, t, frame);
    this.bars.update(t, frame, this.poses);
  }

  #group({ kind, members, bodies, legs }, t, frame) {
    const { game, base, part, swing } = this;
    let shown = 0;
    for (const m of members) {
      const pose = this.poses[m];
      if (!pose.shown) continue;
      const flags = game.flags(frame, m);
      base.makeRotationZ(pose.yaw);
      let lift = 0;
      if (flags & FLAG.fallen) {
        base.multiply(part.makeRotationY(1.35));
        lift = -0.5 * kind.height + 0.35 * kind.width;
      }
      const walked = this.#walked(t, m) / (0.55 * kind.height);
      const speed = this.#speed(frame, m);
      const bob = flags & FLAG.fallen ? 0 : 0.03 * kind.height * Math.abs(Math.sin(walked)) * Math.min(1, speed);
      base.setPosition(pose.x, pose.y, pose.z + lift + bob);
      bodies.setMatrixAt(shown, base);
      this.#tint(m, flags);
      bodies.setColorAt(shown, this.colour);
      for (const side of [0, 1]) {
        const way = Math.sin(walked + side * Math.PI) * 0.5 * Math.min(1, speed);
        part.makeTranslation(0, (side ? -1 : 1) * 0.2 * kind.width, (HIP - 0.5) * kind.height - bob);
        part.premultiply(base).multiply(swing.makeRotationY(flags & FLAG.legged ? 0.5 - side : way));
        legs.setMatrixAt(2 * shown + side, part);
        legs.setColorAt(2 * shown + side, this.colour);
      }
      shown++;
    }
    bodies.count = shown;
    legs.count = 2 * shown;
    bodies.visible = legs.visible = shown > 0;
    for (const mesh of [bodies, legs]) {
      mesh.instanceMatrix.needsUpdate = true;
      if (mesh.instanceColor) mesh.instanceColor.needsUpdate = true;
    }
  }

  #walked(t, m) {
    const { game } = this;
    const frame = game.frame(t);
    const next = Math.min(frame + 1, game.decisions);
    const share = t / game.substeps - frame;
    const a = game.walked[frame * game.count + m];
    return a + share * (game.walked[next * game.count + m] - a);
  }

  #speed(frame, m) {
    const at = 3 * (frame * this.game.count + m);
    const v = this.game.arrays.velocity.data;
    return Math.hypot(v[at], v[at + 1]);
  }

  /** Team colour; shut down is dark, a fresh hit flashes. */
  #tint(m, flags) {
    this.colour.copy(this.team[this.game.mechs[m].team]);
    if (flags & FLAG.shutdown) this.colour.multiplyScalar(0.35);
    const age = this.lastHit?.[m] ?? Infinity;
    if (age < 3) this.colour.lerp(PLATE, 0.7 * (1 - age / 3));
  }
}

const BAR_VERTEX = `
attribute vec3 place;
attribute vec4 levels;
attribute float team;
varying vec2 at;
varying vec4 shares;
varying float side;
uniform float aspect;
void main() {
  at = position.xy;
  shares = levels;
  side = team;
  vec4 centre = modelViewMatrix * vec4(place, 1.0);
  float size = max(0.62, -centre.z * 0.024);
  centre.xy += vec2(position.x * 1.15, position.y * 0.36 + 0.42) * size;
  gl_Position = projectionMatrix * centre;
}`;

const BAR_FRAGMENT = `
varying vec2 at;
varying vec4 shares;
varying float side;
uniform vec3 teams[2];
void main() {
  vec2 uv = at * 0.5 + 0.5;
  vec3 colour = vec3(0.02, 0.03, 0.05);
  float alpha = 0.72;
  float x = (uv.x - 0.03) / 0.94;
  float inside = step(0.0, x) * step(x, 1.0);
  if (inside > 0.5) {
    if (uv.y > 0.44 && uv.y < 0.94) {
      vec3 own = side < 0.5 ? teams[0] : teams[1];
      if (x < shares.x) { colour = own; alpha = 1.0; }
    } else if (uv.y > 0.25 && uv.y < 0.40) {
      if (x < shares.y) { colour = shares.y > 0.999 ? vec3(1.0, 1.0, 1.0) : vec3(1.0, 0.16, 0.16); alpha = 1.0; }
    } else if (uv.y > 0.05 && uv.y < 0.20) {
      if (x < shares.z) { colour = vec3(0.6, 0.38, 1.0); alpha = 1.0; }
    }
  }
  if (shares.w > 0.5 && (uv.x < 0.025 || uv.x > 0.975 || uv.y < 0.05 || uv.y > 0.95)) { colour = vec3(1.0); alpha = 1.0; }
  gl_FragColor = vec4(colour, alpha);
  #include <colorspace_fragment>
}`;

/** Hit points in the team's colour, heat and stability below it, facing the camera; a white frame marks the chosen mech. */
class Bars {
  constructor(game, scene) {
    this.game = game;
    const quad = new THREE.InstancedBufferGeometry();
    quad.setAttribute("position", new THREE.Float32BufferAttribute([-1, -1, 0, 1, -1, 0, 1, 1, 0, -1, 1, 0], 3));
    quad.setIndex([0, 1, 2, 0, 2, 3]);
    this.place = new THREE.InstancedBufferAttribute(new Float32Array(3 * game.count), 3);
    this.levels = new THREE.InstancedBufferAttribute(new Float32Array(4 * game.count), 4);
    this.team = new THREE.InstancedBufferAttribute(new Float32Array(game.count), 1);
    quad.setAttribute("place", this.place);
    quad.setAttribute("levels", this.levels);
    quad.setAttribute("team", this.team);
    const material = new THREE.ShaderMaterial({
      vertexShader: BAR_VERTEX,
      fragmentShader: BAR_FRAGMENT,
      uniforms: { teams: { value: TEAM.map((c) => new THREE.Color(c)) } },
      transparent: true,
      depthTest: false,
      depthWrite: false,
    });
    this.mesh = new THREE.Mesh(quad, material);
    this.mesh.frustumCulled = false;
    this.mesh.renderOrder = 10;
    this.chosen = -1;
    scene.add(this.mesh);
  }

  update(t, frame, poses) {
    const { game } = this;
    let shown = 0;
    for (let m = 0; m < game.count; m++) {
      if (!poses[m].shown) continue;
      const { kind, team } = game.info(m);
      this.place.setXYZ(shown, poses[m].x, poses[m].y, poses[m].z + 0.5 * kind.height + 0.3);
      const hp = Math.max(0, game.value("hp", frame, m)) / kind.hp;
      const heat = Math.min(1, game.value("heat", frame, m) / kind.heat_cap);
      const chosen = m === this.chosen ? 1 : 0;
      this.levels.setXYZW(shown, hp, heat, game.value("stability", frame, m) / 100, chosen);
      this.team.setX(shown, team);
      shown++;
    }
    this.mesh.geometry.instanceCount = shown;
    this.mesh.visible = shown > 0 && this.show !== false;
    for (const attribute of [this.place, this.levels, this.team]) attribute.needsUpdate = true;
  }
}
