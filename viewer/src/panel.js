// One mech in numbers: state, what it did, what its critic said, what it was paid, what it saw.
import { FLAG } from "./game.js";
import { HEAT, STABILITY, TEAM, shortName } from "./look.js";

const REWARD_COLOURS = ["#7cc4ff", "#ffd166", "#ff7b7b", "#ffffff", "#c9a6ff", "#8a94a0", "#7fe0b0", "#ffb3de"];
const TRIGGERS = ["primary", "secondary", "tertiary", "special", "vent"];
const THROTTLES = ["forward", "strafe", "vertical", "yaw_rate"];

export function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function meter(label, colour) {
  const row = element("div", "meter");
  const fill = element("i");
  const track = element("div", "track");
  track.append(fill);
  const number = element("b");
  row.append(element("span", "", label), track, number);
  fill.style.background = colour;
  return {
    row,
    set(share, text) {
      fill.style.width = `${100 * Math.max(0, Math.min(1, share))}%`;
      number.textContent = text;
    },
  };
}

export class Panel {
  constructor(game, root) {
    this.game = game;
    this.root = root;
    this.title = element("h2");
    this.title.id = "mech-name";
    this.flags = element("div", "flags");
    this.hp = meter("hit points", TEAM[0]);
    this.hp.row.id = "mech-hp";
    this.legs = meter("legs", "#9fb0c0");
    this.heat = meter("heat", HEAT);
    this.heat.row.id = "mech-heat";
    this.stability = meter("stability", STABILITY);
    const status = element("section");
    status.append(this.title, this.flags, this.hp.row, this.legs.row, this.heat.row, this.stability.row);
    root.append(status);
    this.#actions();
    this.#rewards();
    this.#sight();
    this.mech = -1;
  }

  #layout(name) {
    return Object.fromEntries(this.game.header[name].map(([n, offset, size]) => [n, { offset, size }]));
  }

  #actions() {
    if (!this.game.arrays.actions) return;
    this.actionAt = this.#layout("action_layout");
    const section = element("section");
    section.append(element("h3", "", "Action"));
    this.throttles = THROTTLES.map((name) => {
      const row = element("div", "meter signed");
      const track = element("div", "track");
      const fill = element("i");
      track.append(fill);
      const number = element("b");
      row.append(element("span", "", name.replace("_rate", "")), track, number);
      section.append(row);
      return { name, fill, number };
    });
    const lights = element("div", "flags");
    this.triggers = TRIGGERS.map((name) => {
      const light = element("span", "light", name);
      lights.append(light);
      return { name, light };
    });
    this.focus = element("div", "line");
    this.value = element("div", "line");
    this.value.id = "mech-value";
    this.chances = element("div", "chances");
    section.append(lights, this.focus, this.value, this.chances);
    this.root.append(section);
  }

  #rewards() {
    if (!this.game.arrays.rewards) return;
    const section = element("section");
    section.append(element("h3", "", "Reward, summed by component"));
    this.curve = element("canvas", "curve");
    this.legend = element("div", "legend");
    section.append(this.curve, this.legend);
    this.root.append(section);
  }

  #sight() {
    if (!this.game.arrays.observation) return;
    const section = element("section");
    section.append(element("h3", "", "What it sees"));
    this.planes = element("div", "planes");
    this.slots = element("div", "slots");
    this.details = element("details");
    this.details.append(element("summary", "", "all numbers"));
    this.numbers = element("div", "numbers");
    this.details.append(this.numbers);
    section.append(this.planes, this.slots, this.details);
    this.root.append(section);
    this.#sightParts();
  }

  /** Sort the layout's entries into planes, slots of other mechs, and single numbers. */
  #sightParts() {
    this.planeParts = [];
    this.slotParts = new Map();
    this.numberParts = [];
    for (const [name, offset, size] of this.game.header.observation_layout) {
      const side = Math.round(Math.sqrt(size));
      const block = name.split("/")[0];
      if (size >= 49 && side * side === size) {
        const canvas = element("canvas");
        canvas.width = canvas.height = side;
        const figure = element("figure");
        figure.append(canvas, element("figcaption", "", name.replace("/", " ")));
        this.planes.append(figure);
        this.planeParts.push({ offset, side, canvas, ahead: /^local/.test(name) });
      } else if (/^(friend|hostile|contact)_\d+$/.test(block)) {
        if (!this.slotParts.has(block)) this.slotParts.set(block, {});
        this.slotParts.get(block)[name.split("/")[1]] = { offset, size };
      } else if (size <= 8) this.numberParts.push({ name, offset, size });
    }
    this.slotRows = new Map();
    const table = element("table");
    const head = element("tr");
    for (const name of ["contact", "hp", "heat", "ahead", "left", ""]) head.append(element("th", "", name));
    table.append(head);
    for (const block of this.slotParts.keys()) {
      const row = element("tr");
      const cells = Array.from({ length: 6 }, () => element("td"));
      cells[0].textContent = block.replace("_", " ");
      row.append(...cells);
      table.append(row);
      this.slotRows.set(block, { row, cells });
    }
    this.slots.append(table);
    this.numberNodes = this.numberParts.map(({ name }) => {
      const value = element("b");
      const row = element("div");
      row.append(element("span", "", name.replace("/", " ").replaceAll("_", " ")), value);
      this.numbers.append(row);
      return value;
    });
  }

  show(m) {
    this.root.hidden = m < 0;
    if (m === this.mech) return;
    this.mech = m;
    this.sums = null;
    if (m < 0) return;
    const { team } = this.game.mechs[m];
    this.title.textContent = shortName(this.game, m);
    this.title.style.color = TEAM[team];
    this.hp.row.querySelector("i").style.background = TEAM[team];
    this.last = -1;
  }

  update(t) {
    const { game, mech: m } = this;
    if (m < 0) return;
    const frame = game.frame(t);
    if (frame === this.last) return;
    this.last = frame;
    const { kind } = game.info(m);
    const hp = game.value("hp", frame, m);
    const alive = Boolean(game.flags(frame, m) & FLAG.alive);
    this.hp.set(hp / kind.hp, `${Math.max(0, hp).toFixed(1)} / ${kind.hp}`);
    const legs = game.value("leg_hp", frame, m);
    this.legs.set(legs / kind.leg_hp, `${Math.max(0, legs).toFixed(1)} / ${kind.leg_hp}`);
    const heat = game.value("heat", frame, m);
    this.heat.set(heat / kind.heat_cap, `${heat.toFixed(1)} / ${kind.heat_cap}`);
    const stability = game.value("stability", frame, m);
    this.stability.set(stability / 100, stability.toFixed(0));
    this.#flags(frame, alive);
    const decision = Math.min(frame, game.decisions - 1);
    this.#showAction(decision);
    this.#showRewards();
    this.#showSight(decision);
  }

  #flags(frame, alive) {
    const bits = this.game.flags(frame, this.mech);
    const words = [];
    if (!alive) words.push("destroyed");
    else {
      if (bits & FLAG.fallen) words.push("fallen");
      if (bits & FLAG.legged) words.push("legs gone");
      if (bits & FLAG.shutdown) words.push("shut down");
      if (bits & FLAG.ecm) words.push("ECM");
      if (bits & FLAG.eccm) words.push("ECCM");
      if (this.game.value("painted", frame, this.mech) > 0) words.push("painted");
      if (this.game.value("suppressed", frame, this.mech) > 0) words.push("suppressed");
      if (!words.length) words.push("active");
    }
    this.flags.replaceChildren(...words.map((word) => element("span", "light on", word)));
  }

  #showAction(decision) {
    const action = this.game.row("actions", decision, this.mech);
    if (!action) return;
    for (const { name, fill, number } of this.throttles) {
      const v = action[this.actionAt[name]?.offset ?? 0];
      fill.style.left = `${50 + 50 * Math.min(0, v)}%`;
      fill.style.width = `${50 * Math.abs(v)}%`;
      number.textContent = v.toFixed(2);
    }
    for (const { name, light } of this.triggers) {
      const at = this.actionAt[name];
      light.classList.toggle("on", Boolean(at) && action[at.offset] > 0);
    }
    const focus = this.game.value("focus", Math.min(decision + 1, this.game.decisions), this.mech);
    this.focus.textContent = focus >= 0 ? `focus: ${shortName(this.game, focus)}` : "focus: none";
    const value = this.game.row("value", decision, this.mech);
    this.value.textContent = value ? `value: ${value[0].toFixed(3)}` : "";
    this.#showChances(decision);
  }

  /** What the policy's heads thought of each choice, the likelier ones first. */
  #showChances(decision) {
    const chances = this.game.halves("probability", decision, this.mech);
    if (!chances || !chances.some((p) => p > 0)) {
      this.chances.replaceChildren();
      return;
    }
    const rows = this.game.header.choices
      .map((name, i) => [name.replace("/", " "), chances[i]])
      .filter(([, p]) => p >= 0.01)
      .sort((a, b) => b[1] - a[1])
      .slice(0, 9);
    this.chances.replaceChildren(
      ...rows.map(([name, p]) => {
        const row = element("div", "meter");
        const track = element("div", "track");
        const fill = element("i");
        fill.style.width = `${100 * p}%`;
        track.append(fill);
        row.append(element("span", "", name), track, element("b", "", `${(100 * p).toFixed(0)} %`));
        return row;
      }),
    );
  }

  #cumulative() {
    const { game, mech } = this;
    const parts = game.header.reward_components.length;
    const sums = new Float32Array((game.decisions + 1) * parts);
    for (let d = 0; d < game.decisions; d++) {
      const row = game.row("rewards", d, mech);
      for (let c = 0; c < parts; c++) sums[(d + 1) * parts + c] = sums[d * parts + c] + row[c];
    }
    return sums;
  }

  #showRewards() {
    if (!this.curve) return;
    const { game } = this;
    this.sums ??= this.#cumulative();
    const names = game.header.reward_components;
    const ratio = Math.min(2, devicePixelRatio);
    this.curve.width = 264 * ratio;
    this.curve.height = 84 * ratio;
    const pen = this.curve.getContext("2d");
    const low = Math.min(0, ...this.sums);
    const high = Math.max(1e-6, ...this.sums);
    const y = (v) => this.curve.height * (1 - (v - low) / (high - low)) * 0.94 + 0.03 * this.curve.height;
    pen.fillStyle = "rgba(255,255,255,.25)";
    pen.fillRect(0, y(0), this.curve.width, ratio);
    names.forEach((_, c) => {
      pen.strokeStyle = REWARD_COLOURS[c % REWARD_COLOURS.length];
      pen.lineWidth = 1.6 * ratio;
      pen.beginPath();
      for (let d = 0; d <= game.decisions; d++) {
        pen.lineTo((d / game.decisions) * this.curve.width, y(this.sums[d * names.length + c]));
      }
      pen.stroke();
    });
    pen.fillStyle = "#fff";
    pen.fillRect((this.last / game.decisions) * this.curve.width, 0, ratio, this.curve.height);
    this.legend.replaceChildren(
      ...names.map((name, c) => {
        const item = element("span", "", `${name} ${this.sums[this.last * names.length + c].toFixed(2)}`);
        item.style.setProperty("--colour", REWARD_COLOURS[c % REWARD_COLOURS.length]);
        return item;
      }),
    );
  }

  #showSight(decision) {
    if (!this.planes) return;
    const seen = this.game.observation(decision, this.mech);
    if (!seen) return;
    for (const { offset, side, canvas, ahead } of this.planeParts) plane(canvas, seen, offset, side, ahead);
    for (const [block, parts] of this.slotParts) {
      const { row, cells } = this.slotRows.get(block);
      const used = parts.known ?? parts.used;
      row.hidden = used ? seen[used.offset] < 0.5 : false;
      if (row.hidden) continue;
      const at = (part, i = 0) => (part ? seen[part.offset + i].toFixed(2) : "");
      cells[1].textContent = at(parts.hp);
      cells[2].textContent = at(parts.heat);
      cells[3].textContent = at(parts.offset_forward ?? parts.offset);
      cells[4].textContent = parts.offset_left ? at(parts.offset_left) : at(parts.offset, 1);
      const marks = ["focused", "painted", "aims", "reached", "line_of_sight", "fallen"];
      cells[5].textContent = marks.filter((n) => parts[n] && seen[parts[n].offset] > 0.5).join(" ").replaceAll("_", " ");
    }
    if (this.details.open) {
      this.numberParts.forEach(({ offset, size }, i) => {
        this.numberNodes[i].textContent = Array.from(seen.subarray(offset, offset + size), (v) => v.toFixed(2)).join(" ");
      });
    }
  }
}

/** A square of numbers as a picture: positive blue-white, negative orange; local planes show ahead at the top. */
function plane(canvas, seen, offset, side, ahead) {
  const pen = canvas.getContext("2d");
  const picture = pen.createImageData(side, side);
  let most = 1;
  for (let i = 0; i < side * side; i++) most = Math.max(most, Math.abs(seen[offset + i]));
  for (let r = 0; r < side; r++) {
    for (let c = 0; c < side; c++) {
      // Rows run forward (or along y), columns to the left (or along x).
      const v = seen[offset + r * side + c] / most;
      const at = 4 * ((side - 1 - r) * side + (ahead ? side - 1 - c : c));
      const a = Math.abs(v);
      picture.data[at] = 24 + a * (v > 0 ? 150 : 231);
      picture.data[at + 1] = 30 + a * (v > 0 ? 190 : 130);
      picture.data[at + 2] = 38 + a * (v > 0 ? 217 : 20);
      picture.data[at + 3] = 255;
    }
  }
  pen.putImageData(picture, 0, 0);
}
