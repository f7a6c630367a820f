// The timeline: zone scores as curves, kills as marks, a playhead to drag.
import { TEAM } from "./look.js";

export class Timeline {
  constructor(game, canvas, seek) {
    this.game = game;
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    const go = (event) => {
      const box = canvas.getBoundingClientRect();
      seek((game.end * Math.max(0, Math.min(1, (event.clientX - box.left) / box.width))));
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      go(event);
    });
    canvas.addEventListener("pointermove", (event) => event.buttons && go(event));
    canvas.setAttribute("aria-valuemin", "0");
    canvas.setAttribute("aria-valuemax", String(game.decisions));
    new ResizeObserver(() => this.#background()).observe(canvas);
    this.#background();
  }

  #background() {
    const { game, canvas } = this;
    const ratio = Math.min(2, devicePixelRatio);
    canvas.width = Math.max(1, Math.round(canvas.clientWidth * ratio));
    canvas.height = Math.max(1, Math.round(canvas.clientHeight * ratio));
    const back = document.createElement("canvas");
    back.width = canvas.width;
    back.height = canvas.height;
    const pen = back.getContext("2d");
    const { width, height } = back;
    pen.fillStyle = "rgba(255,255,255,.06)";
    pen.fillRect(0, 0, width, height);
    const minute = 10 / game.decisionSeconds;
    pen.fillStyle = "rgba(255,255,255,.10)";
    for (let f = minute; f < game.decisions; f += minute) pen.fillRect((f / game.decisions) * width, 0, ratio, height);
    const goal = Math.max(game.header.score_to_win, 1e-6);
    for (const team of [0, 1]) {
      pen.strokeStyle = TEAM[team];
      pen.lineWidth = 2 * ratio;
      pen.setLineDash(team ? [5 * ratio, 3 * ratio] : []);
      pen.beginPath();
      for (let f = 0; f <= game.decisions; f++) {
        const y = height - 3 * ratio - (height - 8 * ratio) * Math.min(1, game.score(f, team) / goal);
        pen.lineTo((f / game.decisions) * width, y);
      }
      pen.stroke();
    }
    pen.setLineDash([]);
    game.recent("kill", game.end, game.end, (i) => {
      const e = game.event(i);
      const x = (e.time / game.end) * width;
      const team = game.mechs[e.b]?.team ?? 0;
      // A mark is in the colour of who died: blue hangs from the top, orange stands on the bottom.
      pen.fillStyle = TEAM[team];
      const [tip, edge] = team ? [height - 11 * ratio, height] : [11 * ratio, 0];
      pen.beginPath();
      pen.moveTo(x, tip);
      pen.lineTo(x - 5 * ratio, edge);
      pen.lineTo(x + 5 * ratio, edge);
      pen.fill();
    });
    this.back = back;
  }

  update(t) {
    const { pen, canvas, game } = this;
    if (this.back.width !== canvas.width) this.#background();
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.fillStyle = "rgba(255,255,255,.07)";
    const x = (t / Math.max(1, game.end)) * canvas.width;
    pen.fillRect(0, 0, x, canvas.height);
    pen.drawImage(this.back, 0, 0);
    pen.fillStyle = "#fff";
    pen.fillRect(x - 1.5, 0, 3, canvas.height);
    canvas.setAttribute("aria-valuenow", String(game.frame(t)));
  }
}
