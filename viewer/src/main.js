// The replay page: reads the game it carries, draws it, and listens to mouse and keys.
import * as THREE from "three";
import { Camera } from "./camera.js";
import { Effects } from "./effects.js";
import { Field } from "./field.js";
import { fromBase64, readReplay } from "./file.js";
import { Game } from "./game.js";
import { Hud } from "./hud.js";
import { TEAM_NAME, shortName } from "./look.js";
import { Mechs } from "./mechs.js";
import { Minimap } from "./minimap.js";
import { Panel } from "./panel.js";
import { Terrain } from "./terrain.js";
import { Timeline } from "./timeline.js";

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
const byId = (id) => document.getElementById(id);

class Viewer {
  constructor(game) {
    this.game = game;
    this.t = 0;
    this.speed = 1;
    this.playing = true;
    this.chosen = -1;
    this.size = [0, 0];
    this.frames = [];
    this.canvas = byId("view");
    // Without a graphics card every pixel costs: no smoothing of edges, fewer pixels, no shadows.
    // `#full` behind the address asks for everything all the same, for pictures.
    this.software = isSoftware() && !/\bfull\b/.test(location.hash);
    this.renderer = new THREE.WebGLRenderer({ canvas: this.canvas, antialias: !this.software });
    this.renderer.setPixelRatio(this.software ? 0.75 : Math.min(devicePixelRatio, 2));
    this.renderer.toneMapping = THREE.ACESFilmicToneMapping;
    this.renderer.toneMappingExposure = 1.15;
    this.renderer.info.autoReset = false;
    this.scene = new THREE.Scene();
    this.scene.background = sky();
    this.field = new Field(game, this.scene);
    this.terrain = new Terrain(game, this.scene);
    this.mechs = new Mechs(game, this.scene);
    this.effects = new Effects(game, this.scene);
    this.mechs.lastHit = this.effects.lastHit;
    this.camera = new Camera(game, this.canvas);
    this.hud = new Hud(game);
    this.panel = new Panel(game, byId("panel"));
    this.timeline = new Timeline(game, byId("timeline"), (t) => this.seek(t));
    this.minimap = new Minimap(game, byId("minimap"), (x, y) => this.camera.lookAt(x, y));
    this.setShadows(!this.software);
    this.#roster();
    this.#buttons();
    this.#keys();
    this.#pointer();
    this.#hash();
    new ResizeObserver(() => this.#resize()).observe(this.canvas.parentElement);
    this.#resize();
    this.choose(-1);
    this.setSpeed(this.speed);
    this.setPlaying(this.playing);
    this.last = performance.now();
    this.renderer.setAnimationLoop((now) => this.#loop(now));
  }

  setShadows(on) {
    this.shadows = on;
    this.renderer.shadowMap.enabled = on;
    this.renderer.shadowMap.type = THREE.PCFShadowMap;
    this.field.sun.castShadow = on;
    for (const material of [this.terrain.solid, this.terrain.clear]) material.needsUpdate = true;
  }

  seek(t) {
    this.t = Math.max(0, Math.min(this.game.end, t));
    this.stale = true;
  }

  setPlaying(on) {
    if (on && this.t >= this.game.end) this.t = 0;
    this.playing = on;
    byId("play").textContent = on ? "❚❚" : "►";
    byId("play").setAttribute("aria-label", on ? "pause" : "play");
  }

  setSpeed(speed) {
    this.speed = speed;
    byId("speed").textContent = `${speed}×`;
  }

  faster(by) {
    const at = SPEEDS.indexOf(this.speed) + by;
    this.setSpeed(SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, at))]);
  }

  stepDecisions(by) {
    this.setPlaying(false);
    this.seek((this.game.frame(this.t) + by) * this.game.substeps);
  }

  choose(m) {
    this.chosen = m;
    this.mechs.bars.chosen = m;
    this.panel.show(m);
    this.panel.last = -1;
    for (const button of byId("roster").querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.mech) === m));
    }
    if (m < 0 && this.camera.mode === "follow") this.camera.follow("free");
    this.#cameraLabel();
  }

  next(by) {
    const { count } = this.game;
    for (let k = 1; k <= count; k++) {
      const m = (((this.chosen < 0 && by > 0 ? -1 : this.chosen) + by * k) % count + count) % count;
      if (this.game.alive(this.t, m)) return this.choose(m);
    }
    return undefined;
  }

  follow() {
    if (this.camera.mode === "follow") this.camera.follow("free");
    else {
      if (this.chosen < 0) this.next(1);
      this.camera.follow("follow");
    }
    this.#cameraLabel();
  }

  #cameraLabel() {
    const following = this.camera.mode === "follow" && this.chosen >= 0;
    byId("camera").textContent = following ? `following ${shortName(this.game, this.chosen)}` : "free camera";
    byId("follow").setAttribute("aria-pressed", String(following));
  }

  #roster() {
    const { game } = this;
    const root = byId("roster");
    for (const team of [0, 1]) {
      const column = document.createElement("div");
      column.className = `team-${team}`;
      game.mechs.forEach((mech, m) => {
        if (mech.team !== team) return;
        const button = document.createElement("button");
        button.dataset.mech = m;
        button.title = shortName(game, m);
        const letter = document.createElement("b");
        letter.textContent = game.header.classes[mech.class].name[0].toUpperCase();
        const bar = document.createElement("i");
        button.append(letter, bar);
        button.addEventListener("click", () => this.choose(this.chosen === m ? -1 : m));
        button.addEventListener("dblclick", () => {
          this.choose(m);
          if (this.camera.mode !== "follow") this.follow();
        });
        column.append(button);
      });
      root.append(column);
    }
    this.rosterBars = [...root.querySelectorAll("button")].map((button) => ({
      m: Number(button.dataset.mech),
      button,
      bar: button.querySelector("i"),
    }));
  }

  #buttons() {
    const on = (id, act) => byId(id).addEventListener("click", act);
    on("play", () => this.setPlaying(!this.playing));
    on("back", () => this.stepDecisions(-1));
    on("ahead", () => this.stepDecisions(1));
    on("slower", () => this.faster(-1));
    on("faster", () => this.faster(1));
    on("follow", () => this.follow());
    on("help-button", () => this.toggle("help"));
    on("debug-button", () => this.toggle("debug"));
    byId("help").addEventListener("click", () => this.toggle("help"));
  }

  toggle(id) {
    const node = byId(id);
    node.hidden = !node.hidden;
  }

  #keys() {
    const acts = {
      " ": () => this.setPlaying(!this.playing),
      ArrowRight: (e) => this.stepDecisions(e.shiftKey ? Math.round(5 / this.game.decisionSeconds) : 1),
      ArrowLeft: (e) => this.stepDecisions(e.shiftKey ? -Math.round(5 / this.game.decisionSeconds) : -1),
      ArrowUp: () => this.faster(1),
      ArrowDown: () => this.faster(-1),
      "+": () => this.faster(1),
      "-": () => this.faster(-1),
      Home: () => this.seek(0),
      End: () => this.seek(this.game.end),
      Tab: (e) => this.next(e.shiftKey ? -1 : 1),
      n: () => this.next(1),
      p: () => this.next(-1),
      f: () => this.follow(),
      k: () => this.#nextKill(1),
      j: () => this.#nextKill(-1),
      c: () => {
        this.camera.reset();
        this.#cameraLabel();
      },
      t: () => {
        this.camera.above();
        this.#cameraLabel();
      },
      m: () => this.toggle("map"),
      u: () => document.body.classList.toggle("bare"),
      b: () => (this.mechs.bars.show = this.mechs.bars.show === false),
      q: () => this.setShadows(!this.shadows),
      g: () => this.toggle("debug"),
      h: () => this.toggle("help"),
      "?": () => this.toggle("help"),
      Escape: () => {
        byId("help").hidden = true;
        this.choose(-1);
      },
    };
    addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
      if ("wasd".includes(key) && key.length === 1) this.camera.held.add(key);
      else if (/^[0-9]$/.test(key)) this.choose(Math.min(this.game.count - 1, (Number(key) + 9) % 10));
      else if (acts[key]) acts[key](event);
      else return;
      event.preventDefault();
    });
    addEventListener("keyup", (event) => this.camera.held.delete(event.key.toLowerCase()));
    addEventListener("blur", () => this.camera.held.clear());
  }

  #nextKill(by) {
    const { time } = this.game.byKind[9];
    const target = by > 0 ? time.find((x) => x > this.t + 12) : time.findLast((x) => x < this.t - 2);
    if (target !== undefined) this.seek(target - 10);
  }

  /** A click without a drag chooses the mech whose middle is nearest on the screen. */
  #pointer() {
    let down = null;
    this.canvas.addEventListener("pointerdown", (e) => (down = [e.clientX, e.clientY]));
    this.canvas.addEventListener("pointerup", (e) => {
      if (!down || Math.hypot(e.clientX - down[0], e.clientY - down[1]) > 4) return;
      const box = this.canvas.getBoundingClientRect();
      const place = new THREE.Vector3();
      let best = -1;
      let nearest = 46;
      this.mechs.poses.forEach((pose, m) => {
        if (!pose.shown) return;
        place.set(pose.x, pose.y, pose.z).project(this.camera.camera);
        const x = box.left + ((place.x + 1) / 2) * box.width;
        const y = box.top + ((1 - place.y) / 2) * box.height;
        const far = Math.hypot(x - e.clientX, y - e.clientY);
        if (place.z < 1 && far < nearest) [best, nearest] = [m, far];
      });
      this.choose(best);
    });
  }

  /** Start values behind the page's address, such as #t=12.5&mech=3&paused. */
  #hash() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const seconds = Number(wanted.get("t"));
    if (Number.isFinite(seconds)) this.seek((seconds / this.game.decisionSeconds) * this.game.substeps);
    if (wanted.has("paused")) this.playing = false;
    const speed = Number(wanted.get("speed"));
    if (SPEEDS.includes(speed)) this.speed = speed;
  }

  #resize() {
    const { clientWidth, clientHeight } = this.canvas.parentElement;
    this.renderer.setSize(clientWidth, clientHeight, false);
    this.size = [clientWidth, clientHeight];
    this.camera.camera.aspect = clientWidth / Math.max(1, clientHeight);
    this.camera.camera.updateProjectionMatrix();
  }

  #loop(now) {
    const seconds = Math.min(0.25, (now - this.last) / 1000);
    this.last = now;
    if (this.playing) this.advance(seconds);
    while (this.frames[0] < now - 1000) this.frames.shift();
    this.draw(seconds);
  }

  /** Moves time on by so many seconds of the viewer's clock; pauses at the end. */
  advance(seconds) {
    this.t += ((seconds * this.speed) / this.game.decisionSeconds) * this.game.substeps;
    if (this.t >= this.game.end) {
      this.t = this.game.end;
      this.setPlaying(false);
    }
    if (this.software) this.#sharpness(seconds);
  }

  /** Without a graphics card: fewer pixels while pictures come slowly, more when they come fast. */
  #sharpness(seconds) {
    this.pace = 0.8 * (this.pace ?? 0.06) + 0.2 * seconds;
    const ratio = this.renderer.getPixelRatio();
    const wanted = this.pace > 0.12 ? 0.8 * ratio : this.pace < 0.04 ? 1.25 * ratio : ratio;
    const bounded = Math.max(0.4, Math.min(0.75, wanted));
    if (bounded === ratio) return;
    this.pace = 0.06;
    this.renderer.setPixelRatio(bounded);
    this.#resize();
  }

  /** Draws the present moment, unless nothing has changed since it was drawn last. */
  draw(seconds = 0) {
    const { t, game } = this;
    const pose = this.chosen >= 0 ? this.mechs.poses[this.chosen] : null;
    this.mechs.update(t);
    this.camera.update(pose, pose ? game.info(this.chosen).kind : null, seconds);
    this.#debug();
    const shown = [t, this.chosen, this.shadows, this.mechs.bars.show, this.terrain.dirty.size, ...this.size,
      ...this.camera.camera.matrixWorld.elements].join();
    if (shown === this.shown) return;
    this.shown = shown;
    this.frames.push(this.last);
    this.terrain.seek(t, this.stale ? Infinity : 3);
    this.stale = false;
    this.effects.update(t, this.mechs.poses);
    this.field.update(t, this.mechs.poses);
    this.renderer.info.reset();
    this.renderer.render(this.scene, this.camera.camera);
    this.hud.update(t, this.field.tick(t));
    this.panel.update(t);
    this.timeline.update(t);
    this.minimap.update(t, this.terrain, this.mechs.poses, this.chosen, this.camera.controls.target);
    this.#rosterUpdate();
  }

  #rosterUpdate() {
    const frame = this.game.frame(this.t);
    for (const { m, button, bar } of this.rosterBars) {
      const alive = this.game.alive(this.t, m);
      button.classList.toggle("dead", !alive);
      bar.style.width = `${alive ? (100 * Math.max(0, this.game.value("hp", frame, m))) / this.game.info(m).kind.hp : 0}%`;
    }
  }

  #debug() {
    const node = byId("debug");
    const { calls, triangles } = this.renderer.info.render;
    this.stats = { calls, triangles, fps: this.frames.length };
    if (node.hidden) return;
    node.textContent =
      `${this.frames.length} frames/s · ${calls} draw calls · ${triangles.toLocaleString("en")} triangles` +
      ` · ${this.shadows ? "shadows" : "no shadows"}${this.software ? " · software rendering" : ""}`;
  }
}

function isSoftware() {
  const gl = document.createElement("canvas").getContext("webgl2");
  if (!gl) throw new Error("this browser does not draw in three dimensions (WebGL 2)");
  const info = gl.getExtension("WEBGL_debug_renderer_info");
  const name = info ? String(gl.getParameter(info.UNMASKED_RENDERER_WEBGL)) : "";
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return /swiftshader|llvmpipe|software|basic render/i.test(name);
}

function sky() {
  const canvas = document.createElement("canvas");
  canvas.width = 4;
  canvas.height = 256;
  const pen = canvas.getContext("2d");
  const fade = pen.createLinearGradient(0, 0, 0, 256);
  fade.addColorStop(0, "#1b2838");
  fade.addColorStop(0.55, "#131c29");
  fade.addColorStop(1, "#0a0f17");
  pen.fillStyle = fade;
  pen.fillRect(0, 0, 4, 256);
  const texture = new THREE.CanvasTexture(canvas);
  texture.colorSpace = THREE.SRGBColorSpace;
  return texture;
}

async function start() {
  const message = byId("message");
  try {
    const game = new Game(await readReplay(fromBase64(byId("replay").textContent)));
    document.title = `${game.header.names[0]} – ${game.header.names[1]} · Echelon`;
    globalThis.echelon = new Viewer(game);
    globalThis.echelon.names = TEAM_NAME;
    message.hidden = true;
  } catch (error) {
    message.textContent = `This replay cannot be shown: ${error.message}`;
    console.error(error);
  }
}

start();
