// Names of hazards by material id.
export const HAZARD_NAMES = { 2: "lava", 4: "debris" };
