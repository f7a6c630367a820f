// The camera: free (orbit, pan, zoom), behind a mech, or straight from above.
import * as THREE from "three";
import { OrbitControls } from "three/addons/controls/OrbitControls.js";

export class Camera {
  constructor(game, canvas) {
    this.game = game;
    this.camera = new THREE.PerspectiveCamera(45, 1, 0.2, 2000);
    this.camera.up.set(0, 0, 1);
    this.controls = new OrbitControls(this.camera, canvas);
    Object.assign(this.controls, {
      enableDamping: true,
      dampingFactor: 0.12,
      maxPolarAngle: 0.495 * Math.PI,
      minDistance: 3,
      maxDistance: 6 * Math.max(game.size.x, game.size.y),
      screenSpacePanning: false,
    });
    this.mode = "free";
    this.held = new Set();
    this.target = new THREE.Vector3();
    this.step = new THREE.Vector3();
    this.reset();
  }

  reset() {
    const { size } = this.game;
    const far = Math.max(size.x, size.y);
    this.mode = "free";
    this.controls.target.set(size.x / 2, size.y / 2, 0);
    this.camera.position.set(size.x / 2 - 0.18 * far, size.y / 2 - 0.98 * far, 0.82 * far);
    this.controls.update();
  }

  above() {
    const { size } = this.game;
    this.mode = "free";
    this.controls.target.set(size.x / 2, size.y / 2, 0);
    this.camera.position.set(size.x / 2, size.y / 2 - 0.01, 1.35 * Math.max(size.x, size.y));
    this.controls.update();
  }

  follow(mode) {
    this.mode = mode;
    this.fresh = true;
  }

  lookAt(x, y) {
    this.mode = "free";
    const dx = x - this.controls.target.x;
    const dy = y - this.controls.target.y;
    this.controls.target.set(x, y, 0);
    this.camera.position.x += dx;
    this.camera.position.y += dy;
  }

  /** `pose` is the followed mech's, or null; `seconds` since the last call. */
  update(pose, kind, seconds) {
    if (this.mode === "follow" && pose) {
      this.target.set(pose.x, pose.y, pose.z);
      this.step.subVectors(this.target, this.controls.target);
      if (this.fresh) {
        const back = 7 + 3 * kind.height;
        this.controls.target.copy(this.target);
        this.camera.position.set(
          pose.x - back * Math.cos(pose.yaw), pose.y - back * Math.sin(pose.yaw), pose.z + 0.55 * back,
        );
        this.fresh = false;
      } else {
        this.controls.target.add(this.step);
        this.camera.position.add(this.step);
      }
    }
    this.#fly(seconds);
    this.controls.update();
  }

  #fly(seconds) {
    if (!this.held.size) return;
    const far = this.camera.position.distanceTo(this.controls.target);
    const speed = seconds * 0.9 * far;
    const angle = this.controls.getAzimuthalAngle();
    const ahead = (this.held.has("w") ? 1 : 0) - (this.held.has("s") ? 1 : 0);
    const right = (this.held.has("d") ? 1 : 0) - (this.held.has("a") ? 1 : 0);
    if (!ahead && !right) return;
    // At azimuth 0 of z-up controls the camera looks along +y.
    this.step.subVectors(this.controls.target, this.camera.position).setZ(0);
    if (this.step.lengthSq() < 1e-6) this.step.set(-Math.sin(angle), Math.cos(angle), 0);
    this.step.normalize();
    const dx = speed * (ahead * this.step.x + right * this.step.y);
    const dy = speed * (ahead * this.step.y - right * this.step.x);
    for (const place of [this.camera.position, this.controls.target]) {
      place.x += dx;
      place.y += dy;
    }
    if (this.mode === "follow") this.mode = "free";
  }
}
