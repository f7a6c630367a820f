// The board under the map, light, the capture zone and the reach of electronic warfare.
import * as THREE from "three";
import { FLAG } from "./game.js";
import { TEAM } from "./look.js";

const NEUTRAL = new THREE.Color("#e8eef5");
const TEAMS = TEAM.map((hex) => new THREE.Color(hex));

const WALL_VERTEX = `
varying float height;
varying float around;
void main() {
  height = uv.y;
  around = uv.x;
  gl_Position = projectionMatrix * modelViewMatrix * vec4(position, 1.0);
}`;
const WALL_FRAGMENT = `
uniform vec3 colour;
uniform float strength;
uniform float time;
varying float height;
varying float around;
void main() {
  float stripes = 0.65 + 0.35 * step(0.5, fract(around * 48.0 + time));
  float a = strength * pow(1.0 - height, 1.6) * stripes;
  gl_FragColor = vec4(colour, a);
  #include <colorspace_fragment>
}`;

export class Field {
  constructor(game, scene) {
    this.game = game;
    const { size, zone } = game;
    this.#board(scene, size);
    this.#lights(scene, size);

    const wall = new THREE.CylinderGeometry(zone.r, zone.r, 3.2, 96, 1, true).rotateX(Math.PI / 2);
    this.wall = new THREE.Mesh(
      wall,
      new THREE.ShaderMaterial({
        vertexShader: WALL_VERTEX,
        fragmentShader: WALL_FRAGMENT,
        uniforms: { colour: { value: NEUTRAL.clone() }, strength: { value: 0.4 }, time: { value: 0 } },
        transparent: true,
        depthWrite: false,
        side: THREE.DoubleSide,
      }),
    );
    this.wall.position.set(zone.x, zone.y, 1.6);
    this.wall.renderOrder = 1;
    const ring = new THREE.RingGeometry(zone.r - 0.22, zone.r + 0.05, 96);
    this.ring = new THREE.Mesh(ring, new THREE.MeshBasicMaterial({ transparent: true, opacity: 0.95, depthWrite: false }));
    this.ring.position.set(zone.x, zone.y, 0.09);
    const floor = new THREE.CircleGeometry(zone.r, 64);
    this.floor = new THREE.Mesh(floor, new THREE.MeshBasicMaterial({ transparent: true, opacity: 0.1, depthWrite: false }));
    this.floor.position.set(zone.x, zone.y, 0.08);
    scene.add(this.floor, this.ring, this.wall);

    // ECM as dashes, ECCM as a whole ring, so that the two differ by shape.
    const r = game.header.ewar_radius;
    const whole = new THREE.RingGeometry(r - 0.12, r + 0.12, 160);
    this.ewar = [dashes(r), whole].map((geometry) => {
      const material = new THREE.MeshBasicMaterial({ transparent: true, opacity: 0.55, depthWrite: false, side: THREE.DoubleSide });
      const mesh = new THREE.InstancedMesh(geometry, material, game.count);
      mesh.setColorAt(0, NEUTRAL);
      mesh.frustumCulled = false;
      scene.add(mesh);
      return mesh;
    });
    this.matrix = new THREE.Matrix4();
    this.colour = new THREE.Color();
  }

  #board(scene, size) {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 256;
    const pen = canvas.getContext("2d");
    pen.fillStyle = "#49525d";
    pen.fillRect(0, 0, 256, 256);
    for (let i = 0; i < 5; i++) {
      for (let j = 0; j < 5; j++) {
        pen.fillStyle = (i + j) % 2 ? "#464f5a" : "#4b5560";
        pen.fillRect(i * 51.2, j * 51.2, 51.2, 51.2);
      }
    }
    pen.strokeStyle = "rgba(255,255,255,.10)";
    pen.lineWidth = 2;
    pen.strokeRect(0, 0, 256, 256);
    const texture = new THREE.CanvasTexture(canvas);
    texture.wrapS = texture.wrapT = THREE.RepeatWrapping;
    texture.repeat.set(size.x / 5, size.y / 5);
    texture.colorSpace = THREE.SRGBColorSpace;
    texture.anisotropy = 8;
    const ground = new THREE.Mesh(new THREE.PlaneGeometry(size.x, size.y), new THREE.MeshLambertMaterial({ map: texture }));
    ground.position.set(size.x / 2, size.y / 2, 0);
    ground.receiveShadow = true;
    const slab = new THREE.Mesh(
      new THREE.BoxGeometry(size.x + 1.2, size.y + 1.2, 1.4),
      new THREE.MeshLambertMaterial({ color: "#252b34" }),
    );
    slab.position.set(size.x / 2, size.y / 2, -0.74);
    scene.add(ground, slab);
  }

  #lights(scene, size) {
    scene.add(new THREE.HemisphereLight("#dbe9ff", "#7a7068", 2.3));
    const sun = new THREE.DirectionalLight("#fff1d8", 1.9);
    const far = Math.max(size.x, size.y);
    sun.position.set(size.x / 2 - 0.45 * far, size.y / 2 - 0.6 * far, 0.9 * far);
    sun.target.position.set(size.x / 2, size.y / 2, 0);
    sun.shadow.mapSize.set(2048, 2048);
    const half = 0.75 * far;
    Object.assign(sun.shadow.camera, { left: -half, right: half, top: half, bottom: -half, near: 0.1, far: 3 * far });
    sun.shadow.bias = -0.0006;
    sun.shadow.normalBias = 0.04;
    this.sun = sun;
    scene.add(sun, sun.target);
  }

  /** Seconds of zone score that each team gains per second around t. */
  tick(t) {
    const { game } = this;
    const f = game.frame(t);
    if (f === 0) return [0, 0];
    return [0, 1].map((team) => (game.score(f, team) - game.score(f - 1, team)) / game.decisionSeconds);
  }

  update(t, poses) {
    const { game } = this;
    const [blue, orange] = this.tick(t);
    const all = blue + orange;
    this.colour.copy(NEUTRAL);
    if (all > 0) this.colour.copy(TEAMS[0]).lerp(TEAMS[1], orange / all);
    this.wall.material.uniforms.colour.value.copy(this.colour);
    this.wall.material.uniforms.strength.value = all > 0 ? 0.55 : 0.3;
    this.wall.material.uniforms.time.value = 0.02 * t;
    this.ring.material.color.copy(this.colour);
    this.floor.material.color.copy(this.colour);

    const frame = game.frame(t);
    [FLAG.ecm, FLAG.eccm].forEach((bit, which) => {
      const mesh = this.ewar[which];
      let shown = 0;
      for (let m = 0; m < game.count; m++) {
        const flags = game.flags(frame, m);
        if (!poses[m].shown || !(flags & bit) || flags & FLAG.shutdown) continue;
        this.matrix.makeRotationZ(which ? 0 : 0.02 * t).setPosition(poses[m].x, poses[m].y, 0.14 + 0.01 * m);
        mesh.setMatrixAt(shown, this.matrix);
        mesh.setColorAt(shown, TEAMS[game.mechs[m].team]);
        shown++;
      }
      mesh.count = shown;
      mesh.visible = shown > 0;
      mesh.instanceMatrix.needsUpdate = true;
      if (mesh.instanceColor) mesh.instanceColor.needsUpdate = true;
    });
  }
}

function dashes(r) {
  const position = [];
  const index = [];
  const parts = 60;
  for (let i = 0; i < parts; i++) {
    for (const end of [0, 0.5]) {
      const angle = (2 * Math.PI * (i + end)) / parts;
      for (const radius of [r - 0.15, r + 0.15]) position.push(radius * Math.cos(angle), radius * Math.sin(angle), 0);
    }
    const a = 4 * i;
    index.push(a, a + 1, a + 3, a, a + 3, a + 2);
  }
  const geometry = new THREE.BufferGeometry();
  geometry.setAttribute("position", new THREE.Float32BufferAttribute(position, 3));
  geometry.setIndex(index);
  return geometry;
}
