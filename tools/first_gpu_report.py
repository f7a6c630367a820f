"""Turn what tools/first_gpu.sh measured into a section of docs/benchmarks.md, and calibrate the cost model with it.

    python tools/first_gpu_report.py first_gpu.json --estimate estimate.json

where estimate.json is `echelon bench --compile-for h100 --arenas 4096 --json`, made before the cost model is calibrated. A
rehearsal is only written to files that are named, never over the project's own.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from echelon_jax.gpu.measured import calibrated, device_of, put_section, section
from echelon_jax.gpu.target import DATA

ROOT = Path(__file__).resolve().parents[1]
PAGE, COST = ROOT / "docs" / "benchmarks.md", DATA / "cost.json"
UNMEASURED = "No GPU has been measured yet."


def main(argv: list[str] | None = None) -> int:
    """Write both files; 2 for results that cannot be used, in one sentence."""
    parser = argparse.ArgumentParser(prog="tools/first_gpu_report.py", description=__doc__)
    parser.add_argument("results", type=Path, help="file that tools/first_gpu.sh wrote")
    parser.add_argument(
        "--estimate", type=Path, default=None, help="report of echelon bench --compile-for, to compare with"
    )
    parser.add_argument("--page", type=Path, default=PAGE, help="page that gets the section")
    parser.add_argument("--cost", type=Path, default=COST, help="file of the cost model's constants, rewritten")
    asked = parser.parse_args(argv)
    try:
        results = json.loads(asked.results.read_text())
        if results.get("rehearsal") and (asked.page == PAGE or asked.cost == COST):
            raise ValueError(
                "results of a rehearsal must not go into the project's files; name others by --page and --cost"
            )
        estimate = json.loads(asked.estimate.read_text()) if asked.estimate else None
        text, device = section(results, estimate), device_of(results)
        cost = calibrated(json.loads(asked.cost.read_text()), results)
    except (OSError, ValueError, KeyError) as error:
        print(f"first_gpu_report: {error}", file=sys.stderr)
        return 2
    page = asked.page.read_text().replace(f"{UNMEASURED}\n", "") if asked.page.is_file() else ""
    asked.page.write_text(put_section(page, text, device))
    asked.cost.write_text(json.dumps(cost, indent=2) + "\n")
    print(f"wrote {asked.page} and {asked.cost}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
