// Names, scores, clock, living mechs, the kill feed and the buttons.
import { HAZARD_NAMES } from "./words.js";
import { TEAM, TEAM_NAME, shortName } from "./look.js";
import { element } from "./panel.js";

const FEED_SECONDS = 14;
const REASON = { zone_control: "by zone control", elimination: "by elimination", time_up: "on time" };

export class Hud {
  constructor(game) {
    this.game = game;
    this.node = (id) => document.getElementById(id);
    for (const team of [0, 1]) {
      const side = this.node(`side-${team}`);
      side.querySelector(".name").textContent = game.header.names[team];
      side.querySelector(".team").textContent = TEAM_NAME[team];
      side.style.setProperty("--team", TEAM[team]);
    }
    const { header } = game;
    this.node("title").textContent = header.title;
    const facts = [
      `${game.size.x}×${game.size.y}×${game.size.z}`,
      `${game.mechs.filter((m) => m.team === 0).length} against ${game.mechs.filter((m) => m.team === 1).length}`,
      header.rules ? `${header.rules} rules` : "",
      Number.isInteger(header.seed) ? `map ${header.seed}` : "",
    ];
    this.node("facts").textContent = facts.filter(Boolean).join(" · ");
    this.feedKey = "";
  }

  update(t, tick) {
    const { game } = this;
    const frame = game.frame(t);
    const goal = game.header.score_to_win;
    for (const team of [0, 1]) {
      const side = this.node(`side-${team}`);
      const score = game.score(frame, team);
      side.querySelector(".score").textContent = score.toFixed(1);
      side.querySelector(".goal").textContent = `/ ${goal.toFixed(0)}`;
      side.querySelector(".bar i").style.width = `${100 * Math.min(1, score / Math.max(goal, 1e-6))}%`;
      const living = game.living(t, team);
      const all = game.mechs.filter((m) => m.team === team).length;
      const alive = side.querySelector(".alive");
      const pips = "●".repeat(living) + "○".repeat(all - living);
      if (alive.textContent !== pips) alive.textContent = pips;
      alive.title = `${living} of ${all} alive`;
      side.classList.toggle("holds", tick[team] > tick[1 - team]);
    }
    const seconds = game.seconds(t);
    this.node("clock").textContent = clock(seconds);
    this.node("clock-total").textContent = clock(game.seconds(game.end));
    this.node("decision").textContent = `decision ${frame} of ${game.decisions}`;
    const over = frame >= game.decisions;
    const verdict = this.node("verdict");
    verdict.hidden = !over || !game.header.winner;
    if (over && game.header.winner) {
      const winner = { blue: 0, red: 1 }[game.header.winner];
      const why = REASON[game.header.reason] ?? "";
      verdict.textContent = winner === undefined ? `Draw ${why}` : `${TEAM_NAME[winner]} wins ${why}`;
      verdict.style.color = winner === undefined ? "#fff" : TEAM[winner];
    }
    this.#feed(t);
  }

  #feed(t) {
    const { game } = this;
    const rows = [];
    const life = (FEED_SECONDS / game.decisionSeconds) * game.substeps;
    for (const kind of ["kill", "knockdown", "shutdown", "legged", "intercept"]) {
      game.recent(kind, t, life, (i) => rows.push(i));
    }
    rows.sort((a, b) => b - a);
    const shown = rows.slice(0, 7);
    const key = shown.join();
    if (key === this.feedKey) return;
    this.feedKey = key;
    this.node("feed").replaceChildren(...shown.map((i) => this.#line(game.event(i))));
  }

  #line(e) {
    const { game } = this;
    const row = element("div", e.kind === "kill" ? "kill" : "");
    const who = (m) => {
      const name = element("b", "", m >= 0 ? shortName(game, m) : "Terrain");
      if (m >= 0) name.style.color = TEAM[game.mechs[m].team];
      return name;
    };
    const weapon = game.header.weapons[e.weapon] ?? HAZARD_NAMES[Math.round(e.amount)] ?? "hazard";
    if (e.kind === "kill") row.append(who(e.a), element("span", "weapon", weapon), who(e.b));
    else if (e.kind === "intercept") row.append(who(e.a), element("span", "", "stops a missile of"), who(e.b));
    else row.append(who(e.b), element("span", "", { knockdown: "falls", shutdown: "overheats", legged: "loses its legs" }[e.kind]));
    row.prepend(element("time", "", clock(game.seconds(e.time))));
    return row;
  }
}

export function clock(seconds) {
  const whole = Math.max(0, seconds);
  return `${Math.floor(whole / 60)}:${(whole % 60).toFixed(1).padStart(4, "0")}`;
}
