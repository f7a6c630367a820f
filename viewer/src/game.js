// A replay as questions about a moment: where everybody is, what has happened, how the game stands. Times are substeps.
import { half } from "./file.js";

export const EVENTS = [
  "beam", "missile", "kinetic", "smoke", "paint", "intercept", "hit", "splash", "assist", "kill", "explosion", "cloud",
  "impact", "expired", "knockdown", "stood_up", "shutdown", "restarted", "legged",
];
export const WEAPON = { laser: 0, flamer: 1, missile: 2, smoke: 3, gauss: 4, autocannon: 5, painter: 6 };
export const FLAG = { alive: 1, fallen: 2, legged: 4, shutdown: 8, ecm: 16, eccm: 32 };
const TRACK_UNIT = 64;
const POSE_UNIT = 64;
const TURN_UNIT = 65536 / (2 * Math.PI);

/** First index of a sorted array whose value is at least x. */
export function lower(sorted, x) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

export class Game {
  constructor({ header, arrays }) {
    this.header = header;
    this.arrays = arrays;
    this.mechs = header.mechs;
    this.count = header.mechs.length;
    this.substeps = header.substeps;
    this.decisionSeconds = header.decision_seconds;
    this.decisions = arrays.position.shape[0] - 1;
    this.end = this.decisions * this.substeps;
    this.size = { x: arrays.material.shape[2], y: arrays.material.shape[1], z: arrays.material.shape[0] };
    const [zx, zy, zr] = arrays.zone.data;
    this.zone = { x: zx, y: zy, r: zr };
    this.byKind = EVENTS.map(() => ({ index: [], time: [] }));
    const { data: kinds } = arrays.event_kind;
    const { data: times } = arrays.event_time;
    for (let i = 0; i < kinds.length; i++) {
      this.byKind[kinds[i]].index.push(i);
      this.byKind[kinds[i]].time.push(times[i]);
    }
    this.deaths = this.mechs.map((_, m) => this.#death(m));
    this.walked = this.#walked();
    this.trackStart = [];
    let at = 0;
    for (const points of arrays.track_points.data) {
      this.trackStart.push(at);
      at += points;
    }
    this.longestTrack = arrays.track_points.data.reduce((a, b) => Math.max(a, b), 0);
  }

  #death(m) {
    const kills = this.byKind[EVENTS.indexOf("kill")].index;
    const hit = kills.find((i) => this.arrays.event_b.data[i] === m);
    if (hit !== undefined) return this.arrays.event_time.data[hit];
    for (let f = 0; f <= this.decisions; f++) if (!(this.flags(f, m) & FLAG.alive)) return f * this.substeps;
    return Infinity;
  }

  /** Way each mech has walked by each frame, for the swing of its legs. */
  #walked() {
    const way = new Float32Array((this.decisions + 1) * this.count);
    const p = this.arrays.position.data;
    for (let f = 1; f <= this.decisions; f++) {
      for (let m = 0; m < this.count; m++) {
        const a = 3 * ((f - 1) * this.count + m);
        const b = 3 * (f * this.count + m);
        way[f * this.count + m] = way[(f - 1) * this.count + m] + Math.hypot(p[b] - p[a], p[b + 1] - p[a + 1]);
      }
    }
    return way;
  }

  seconds(t) {
    return (t / this.substeps) * this.decisionSeconds;
  }

  frame(t) {
    return Math.max(0, Math.min(this.decisions, Math.floor(t / this.substeps + 1e-6)));
  }

  flags(frame, m) {
    return this.arrays.flags.data[frame * this.count + m];
  }

  value(name, frame, m) {
    return this.arrays[name].data[frame * this.count + m];
  }

  alive(t, m) {
    return t < this.deaths[m];
  }

  score(frame, team) {
    return this.arrays.score.data[2 * frame + team];
  }

  info(m) {
    const mech = this.mechs[m];
    return { ...mech, kind: this.header.classes[mech.class] };
  }

  /** Pose of a mech between substeps: {x, y, z, yaw}. */
  pose(t, m, out) {
    const clamped = Math.max(0, Math.min(this.end, t));
    const pose = this.arrays.pose?.data;
    if (pose) {
      const i = Math.floor(clamped);
      const share = clamped - i;
      this.#poseAt(i, m, out);
      if (share > 0 && i < this.end) {
        const b = 4 * (i * this.count + m);
        out.x += share * (pose[b] / POSE_UNIT - out.x);
        out.y += share * (pose[b + 1] / POSE_UNIT - out.y);
        out.z += share * (pose[b + 2] / POSE_UNIT - out.z);
        out.yaw += share * wrap(pose[b + 3] / TURN_UNIT - out.yaw);
      }
      return out;
    }
    const f = this.frame(clamped);
    const g = Math.min(f + 1, this.decisions);
    const share = clamped / this.substeps - f;
    const p = this.arrays.position.data;
    const a = 3 * (f * this.count + m);
    const b = 3 * (g * this.count + m);
    out.x = p[a] + share * (p[b] - p[a]);
    out.y = p[a + 1] + share * (p[b + 1] - p[a + 1]);
    out.z = p[a + 2] + share * (p[b + 2] - p[a + 2]);
    const yaw = this.value("yaw", f, m);
    out.yaw = yaw + share * wrap(this.value("yaw", g, m) - yaw);
    return out;
  }

  /** Pose at a whole substep: the first is the frame before any decision. */
  #poseAt(i, m, out) {
    if (i <= 0) {
      const p = this.arrays.position.data;
      out.x = p[3 * m];
      out.y = p[3 * m + 1];
      out.z = p[3 * m + 2];
      out.yaw = this.arrays.yaw.data[m];
      return;
    }
    const pose = this.arrays.pose.data;
    const a = 4 * ((i - 1) * this.count + m);
    out.x = pose[a] / POSE_UNIT;
    out.y = pose[a + 1] / POSE_UNIT;
    out.z = pose[a + 2] / POSE_UNIT;
    out.yaw = pose[a + 3] / TURN_UNIT;
  }

  /** Calls visit(event index, age in substeps) for the events of a kind within `life` substeps before t. */
  recent(kind, t, life, visit) {
    const { index, time } = this.byKind[EVENTS.indexOf(kind)];
    for (let i = lower(time, t - life); i < time.length && time[i] <= t; i++) visit(index[i], t - time[i]);
  }

  event(i) {
    const a = this.arrays;
    return {
      time: a.event_time.data[i],
      kind: EVENTS[a.event_kind.data[i]],
      weapon: a.event_weapon.data[i],
      a: a.event_a.data[i],
      b: a.event_b.data[i],
      flags: a.event_flags.data[i],
      amount: a.event_amount.data[i],
      x: a.event_position.data[3 * i],
      y: a.event_position.data[3 * i + 1],
      z: a.event_position.data[3 * i + 2],
    };
  }

  /** Calls visit(track, age) for the projectiles that fly at t or ended within `after` substeps. */
  flying(t, after, visit) {
    const starts = this.arrays.track_start.data;
    const points = this.arrays.track_points.data;
    for (let k = lower(starts, t - this.longestTrack - after); k < starts.length && starts[k] <= t; k++) {
      if (t <= starts[k] + points[k] - 1 + after) visit(k, t - starts[k]);
    }
  }

  /** Point of a projectile's track at an age, held at its ends. */
  trackPoint(k, age, out) {
    const last = this.arrays.track_points.data[k] - 1;
    const at = Math.max(0, Math.min(last, age));
    const i = Math.min(Math.floor(at), Math.max(0, last - 1));
    const share = at - i;
    const p = this.arrays.track_position.data;
    const a = 3 * (this.trackStart[k] + i);
    const b = last > 0 ? a + 3 : a;
    out.set(
      (p[a] + share * (p[b] - p[a])) / TRACK_UNIT,
      (p[a + 1] + share * (p[b + 1] - p[a + 1])) / TRACK_UNIT,
      (p[a + 2] + share * (p[b + 2] - p[a + 2])) / TRACK_UNIT,
    );
    return out;
  }

  living(t, team) {
    let n = 0;
    for (let m = 0; m < this.count; m++) if (this.mechs[m].team === team && this.alive(t, m)) n++;
    return n;
  }

  /** What a mech saw before a decision, as numbers, or null. */
  observation(decision, m) {
    return this.halves("observation", decision, m);
  }

  /** A mech's row of a half-precision array at a decision, as numbers, or null. */
  halves(name, decision, m) {
    const row = this.row(name, decision, m);
    return row && Float32Array.from(row, half);
  }

  row(name, decision, m) {
    const array = this.arrays[name];
    if (!array || decision >= this.decisions) return null;
    const size = array.shape[2] ?? 1;
    const at = (decision * this.count + m) * size;
    return array.data.subarray(at, at + size);
  }
}

export function wrap(angle) {
  return angle - 2 * Math.PI * Math.round(angle / (2 * Math.PI));
}
