// Bundles the viewer with three.js into one script for the Python package, and copies three's licence beside it.
import { copyFileSync, mkdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const assets = join(here, "..", "echelon_jax", "replay", "assets");
mkdirSync(assets, { recursive: true });
await build({
  entryPoints: [join(here, "src", "main.js")],
  outfile: join(assets, "viewer.js"),
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  legalComments: "none",
  banner: { js: "/* Echelon replay viewer. Contains three.js, MIT licence: see LICENSE.three.txt. Built from viewer/. */" },
});
copyFileSync(join(here, "node_modules", "three", "LICENSE"), join(assets, "LICENSE.three.txt"));
copyFileSync(join(here, "src", "viewer.css"), join(assets, "viewer.css"));
copyFileSync(join(here, "src", "page.html"), join(assets, "page.html"));
console.log(`viewer.js: ${(statSync(join(assets, "viewer.js")).size / 1024).toFixed(0)} kB`);
