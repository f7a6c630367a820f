// Many camera-facing quads in one draw call: soft smoke, glows, rings and marks, each with place, size, colour and strength.
import * as THREE from "three";

export const SHAPE = { soft: 0, glow: 1, ring: 2, mark: 3 };

const VERTEX = `
attribute vec3 place;
attribute vec4 tint;
attribute vec2 form;
varying vec2 at;
varying vec4 colour;
varying float shape;
void main() {
  at = position.xy;
  colour = tint;
  shape = form.y;
  vec4 centre = modelViewMatrix * vec4(place, 1.0);
  float size = form.x;
  if (form.y > 2.5) size *= max(1.0, -centre.z * 0.028);
  centre.xy += position.xy * size;
  gl_Position = projectionMatrix * centre;
}`;

const FRAGMENT = `
varying vec2 at;
varying vec4 colour;
varying float shape;
void main() {
  float r = length(at);
  float a;
  if (shape < 0.5) a = smoothstep(1.0, 0.25, r);
  else if (shape < 1.5) a = pow(max(0.0, 1.0 - r), 2.0) + 0.9 * smoothstep(0.35, 0.0, r);
  else if (shape < 2.5) a = smoothstep(0.16, 0.0, abs(r - 0.82));
  else {
    float d = abs(at.x) + abs(at.y);
    a = smoothstep(0.08, 0.0, abs(d - 0.8)) + smoothstep(0.3, 0.2, d);
  }
  if (a * colour.a < 0.004) discard;
  gl_FragColor = vec4(colour.rgb, min(1.0, a * colour.a));
  #include <colorspace_fragment>
}`;

export class Sprites {
  constructor(scene, capacity, { additive = false, depthTest = true, order = 2 } = {}) {
    this.capacity = capacity;
    const quad = new THREE.InstancedBufferGeometry();
    quad.setAttribute("position", new THREE.Float32BufferAttribute([-1, -1, 0, 1, -1, 0, 1, 1, 0, -1, 1, 0], 3));
    quad.setIndex([0, 1, 2, 0, 2, 3]);
    this.parts = {};
    for (const [name, width] of [["place", 3], ["tint", 4], ["form", 2]]) {
      const attribute = new THREE.InstancedBufferAttribute(new Float32Array(capacity * width), width);
      attribute.setUsage(THREE.DynamicDrawUsage);
      quad.setAttribute(name, attribute);
      this.parts[name] = attribute;
    }
    const material = new THREE.ShaderMaterial({
      vertexShader: VERTEX,
      fragmentShader: FRAGMENT,
      transparent: true,
      depthWrite: false,
      depthTest,
      blending: additive ? THREE.AdditiveBlending : THREE.NormalBlending,
    });
    this.mesh = new THREE.Mesh(quad, material);
    this.mesh.frustumCulled = false;
    this.mesh.renderOrder = order;
    scene.add(this.mesh);
    this.clear();
  }

  clear() {
    this.count = 0;
  }

  add(x, y, z, size, colour, alpha, shape = SHAPE.soft) {
    if (this.count >= this.capacity || alpha <= 0) return;
    const i = this.count++;
    this.parts.place.setXYZ(i, x, y, z);
    this.parts.tint.setXYZW(i, colour.r, colour.g, colour.b, alpha);
    this.parts.form.setXY(i, size, shape);
  }

  show() {
    this.mesh.geometry.instanceCount = this.count;
    this.mesh.visible = this.count > 0;
    for (const attribute of Object.values(this.parts)) {
      attribute.clearUpdateRanges();
      attribute.addUpdateRange(0, this.count * attribute.itemSize);
      attribute.needsUpdate = this.count > 0;
    }
  }
}

/** Straight glowing rods between points, all in one draw call; brightness fades by colour, since they add light. */
export class Rods {
  constructor(scene, capacity) {
    this.capacity = capacity;
    const rod = new THREE.CylinderGeometry(1, 1, 1, 6, 1, true).rotateZ(-Math.PI / 2).translate(0.5, 0, 0);
    const material = new THREE.MeshBasicMaterial({
      transparent: true,
      blending: THREE.AdditiveBlending,
      depthWrite: false,
      side: THREE.FrontSide,
    });
    this.mesh = new THREE.InstancedMesh(rod, material, capacity);
    this.mesh.instanceMatrix.setUsage(THREE.DynamicDrawUsage);
    this.mesh.setColorAt(0, new THREE.Color());
    this.mesh.instanceColor.setUsage(THREE.DynamicDrawUsage);
    this.mesh.frustumCulled = false;
    this.mesh.renderOrder = 3;
    scene.add(this.mesh);
    this.way = new THREE.Vector3();
    this.turn = new THREE.Quaternion();
    this.scale = new THREE.Vector3();
    this.matrix = new THREE.Matrix4();
    this.colour = new THREE.Color();
    this.ahead = new THREE.Vector3(1, 0, 0);
    this.clear();
  }

  clear() {
    this.count = 0;
  }

  add(from, to, thickness, colour, strength) {
    if (this.count >= this.capacity || strength <= 0) return;
    this.way.subVectors(to, from);
    const length = this.way.length();
    if (length < 1e-4) return;
    this.turn.setFromUnitVectors(this.ahead, this.way.multiplyScalar(1 / length));
    this.matrix.compose(from, this.turn, this.scale.set(length, thickness, thickness));
    this.mesh.setMatrixAt(this.count, this.matrix);
    this.mesh.setColorAt(this.count, this.colour.copy(colour).multiplyScalar(strength));
    this.count++;
  }

  show() {
    this.mesh.count = this.count;
    this.mesh.visible = this.count > 0;
    this.mesh.instanceMatrix.needsUpdate = this.count > 0;
    this.mesh.instanceColor.needsUpdate = this.count > 0;
  }
}
