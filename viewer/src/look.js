// Colours and names. Blue and orange differ for every kind of colour blindness; shapes tell the teams apart as well.
export const TEAM = ["#3b9cff", "#ff9d2e"];
export const TEAM_DARK = ["#12467f", "#7d4508"];
export const TEAM_NAME = ["Blue", "Orange"];

// By material id: colour, and how it is drawn (none, block, clear, tile).
export const MATERIAL = [
  { name: "air", draw: "none" },
  { name: "solid", draw: "block", colour: "#a7adb4" },
  { name: "lava", draw: "tile", layer: "lava", colour: "#ff4b1e" },
  { name: "water", draw: "tile", layer: "water", colour: "#2a9aa8" },
  { name: "debris", draw: "block", colour: "#8a6f58" },
  { name: "wreck", draw: "block", colour: "#4d4845" },
  { name: "dirt", draw: "tile", layer: "tiles", colour: "#80766a" },
  { name: "glass", draw: "clear", colour: "#a9dce8" },
  { name: "reinforced", draw: "block", colour: "#75748c" },
  { name: "foliage", draw: "block", colour: "#6f9b5e" },
];

export const HEALTH = "#e8eef5";
export const HEAT = "#ff5c5c";
export const STABILITY = "#c9a6ff";

const NAMES = { scout: "Scout", light: "Light", medium: "Medium", heavy: "Heavy" };

export function shortName(game, m) {
  const { class: kind, team, id } = game.mechs[m];
  const name = game.header.classes[kind].name;
  const number = /\d+$/.exec(id);
  return `${TEAM_NAME[team]} ${NAMES[name] ?? name}${number ? ` ${number[0]}` : ""}`;
}
