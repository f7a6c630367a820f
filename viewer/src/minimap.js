// The map from above in a corner: terrain, zone, mechs with heading, where the camera looks.
import { TEAM } from "./look.js";

const EDGE = 190;

export class Minimap {
  constructor(game, canvas, pick) {
    this.game = game;
    this.canvas = canvas;
    const { x, y } = game.size;
    this.scale = EDGE / Math.max(x, y);
    canvas.width = Math.round(2 * x * this.scale);
    canvas.height = Math.round(2 * y * this.scale);
    canvas.style.width = `${canvas.width / 2}px`;
    canvas.style.height = `${canvas.height / 2}px`;
    this.pen = canvas.getContext("2d");
    this.ground = document.createElement("canvas");
    this.ground.width = x;
    this.ground.height = y;
    this.age = 0;
    const go = (event) => {
      const box = canvas.getBoundingClientRect();
      pick((x * (event.clientX - box.left)) / box.width, y * (1 - (event.clientY - box.top) / box.height));
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      go(event);
    });
    canvas.addEventListener("pointermove", (event) => event.buttons && go(event));
  }

  update(t, terrain, poses, chosen, target) {
    const { pen, game } = this;
    if (this.age++ % 30 === 0) this.ground.getContext("2d").putImageData(terrain.picture(), 0, 0);
    const s = 2 * this.scale;
    const height = this.canvas.height;
    pen.imageSmoothingEnabled = false;
    pen.drawImage(this.ground, 0, 0, this.canvas.width, height);
    pen.lineWidth = 3;
    pen.strokeStyle = "rgba(255,255,255,.9)";
    pen.beginPath();
    pen.arc(game.zone.x * s, height - game.zone.y * s, game.zone.r * s, 0, 2 * Math.PI);
    pen.stroke();
    for (let m = 0; m < game.count; m++) {
      const p = poses[m];
      if (!p.shown) continue;
      const { team, kind } = game.info(m);
      const r = (2.5 + 1.6 * kind.width) * Math.min(1.4, Math.max(0.8, s / 5));
      pen.save();
      pen.translate(p.x * s, height - p.y * s);
      pen.rotate(-p.yaw);
      pen.fillStyle = TEAM[team];
      pen.strokeStyle = m === chosen ? "#fff" : "rgba(0,0,0,.75)";
      pen.lineWidth = m === chosen ? 4 : 2;
      pen.beginPath();
      // Blue is a wedge, orange a square with a nose: shape tells them apart too.
      if (team === 0) pen.moveTo(1.5 * r, 0), pen.lineTo(-r, r), pen.lineTo(-0.5 * r, 0), pen.lineTo(-r, -r);
      else pen.moveTo(1.5 * r, 0), pen.lineTo(0.7 * r, r), pen.lineTo(-r, r), pen.lineTo(-r, -r), pen.lineTo(0.7 * r, -r);
      pen.closePath();
      pen.stroke();
      pen.fill();
      pen.restore();
    }
    pen.strokeStyle = "rgba(255,255,255,.8)";
    pen.lineWidth = 2;
    const x = target.x * s;
    const y = height - target.y * s;
    pen.beginPath();
    pen.moveTo(x - 7, y);
    pen.lineTo(x + 7, y);
    pen.moveTo(x, y - 7);
    pen.lineTo(x, y + 7);
    pen.stroke();
  }
}
