"""Rows of the launch table of docs/gpu.md: compile programs for a GPU and print them as Markdown.

python tools/gpu_table.py --arenas 4096 16384 --rules original revised
python tools/gpu_table.py --program train --rules revised --arenas 2048 8192
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from echelon_jax.config import RULE_SETS, EnvConfig
from echelon_jax.gpu.compiler import CompileFailed, NoCompiler, Request
from echelon_jax.gpu.measured import table
from echelon_jax.gpu.report import compile_and_describe, known_trips
from echelon_jax.native.choice import KERNELS

HEAD = (
    "rules",
    "arenas",
    "kernels",
    "copies",
    "loops that ask",
    "host checks",
    "temporaries MiB",
    "ms, estimate",
    "decisions/s, estimate",
)


def row(rules: str, report: dict[str, Any]) -> list[str]:
    """One program's row; counts and milliseconds are a decision step, estimates are mid (low to high cost)."""
    total, speeds = report["total"], report["estimate"]["decisions_per_second"]
    times = {level: value / 1000.0 for level, value in total["microseconds"].items()}
    return [
        rules,
        f"{report['arenas']:,}",
        f"{total['kernels']:,.0f}",
        f"{total['copies']:,.0f}",
        f"{report['host_synchronised_loops']}",
        f"{total['host_checks']:,.0f}",
        f"{report['memory_bytes']['temp'] / 2**20:,.0f}",
        f"{times['mid']:,.1f} ({times['low']:,.1f} to {times['high']:,.1f})",
        f"{speeds['mid']:,.0f} ({speeds['high']:,.0f} to {speeds['low']:,.0f})",
    ]


def main(argv: list[str] | None = None) -> int:
    """Compile, print the table and, with --keep, write each report; 2 where the compiler is missing or fails."""
    parser = argparse.ArgumentParser(prog="tools/gpu_table.py", description=__doc__)
    parser.add_argument("--target", default="h100")
    parser.add_argument("--program", default="env")
    parser.add_argument("--rules", nargs="+", default=list(RULE_SETS), choices=RULE_SETS)
    parser.add_argument("--arenas", nargs="+", type=int, default=[4096, 16384])
    parser.add_argument("--size", type=int, default=60)
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--kernels", default=KERNELS[0], choices=KERNELS)
    parser.add_argument("--keep", type=Path, default=None, help="directory for the reports")
    asked = parser.parse_args(argv)
    rows = []
    for rules in asked.rules:
        config: EnvConfig = getattr(EnvConfig, rules)(size_x=asked.size, size_y=asked.size)
        for arenas in asked.arenas:
            asks = {"program": asked.program, "graphs": asked.graphs, "kernels": asked.kernels}
            request = Request.of(config, target=asked.target, arenas=arenas, **asks)
            try:
                report = compile_and_describe(request, *known_trips())
            except (NoCompiler, CompileFailed, ValueError) as error:
                print(f"gpu_table: {error}", file=sys.stderr)
                return 2
            rows.append(row(rules, report))
            if asked.keep is not None:
                asked.keep.mkdir(parents=True, exist_ok=True)
                name = f"{asked.program}_{rules}_{arenas}{'_graphs' if asked.graphs else ''}_{asked.kernels}.json"
                (asked.keep / name).write_text(json.dumps(report, indent=1))
    print("\n".join(table(HEAD, rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
