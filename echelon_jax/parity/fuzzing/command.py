"""`make fuzz`: fuzzed parity over all shapes in turn, for as long as it is let; counts are kept, faults become test cases.

`python -m echelon_jax.parity.fuzzing.command --mech-steps 1000000 --progress counts.json` goes on from the counts in the file. A
fault is shrunk to a small case and written where `tests/parity/test_fuzz.py` finds it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon_jax.fields import seed_argument
from echelon_jax.markdown import row
from echelon_jax.parity.fuzzing import fuzz
from echelon_jax.parity.fuzzing.cases import make_case
from echelon_jax.parity.fuzzing.fuzz import FAULT, Result
from echelon_jax.parity.fuzzing.shapes import shapes
from echelon_jax.parity.fuzzing.shrink import save_case, shrink
from echelon_jax.parity.recorded.teacher_forced import Stepper

CASES = Path("tests") / "data" / "fuzz"
CHUNK = 400  # steps of a shape with one pack before the next has its turn; fewer with more packs


def load_progress(path: Path | None, names: Sequence[str]) -> dict[str, Result]:
    """The counts of each shape from a file, or zero."""
    kept = json.loads(path.read_text()) if path is not None and path.exists() else {}
    return {name: Result.from_dict(kept[name]) if name in kept else Result() for name in names}


def save_progress(path: Path | None, results: Mapping[str, Result]) -> None:
    """Write the counts of all shapes; those of other shapes in the file stay."""
    if path is None:
        return
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept.update({name: dataclasses.asdict(result) for name, result in results.items()})
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(kept))
    fresh.replace(path)


def table(results: Mapping[str, Result]) -> str:
    """Counts per shape as a table of the documentation."""
    lines = [
        row("shape", "steps", "mech-steps", "explained by float32 rays", "by a nudge", "faults"),
        row(*["---"] * 6),
    ]
    everything = Result()
    for name, result in [*results.items(), ("all", everything)]:
        why = result.explained
        counts = result.steps, result.mech_rows, why[fuzz.BY_RAYS], why[fuzz.BY_NUDGE], len(result.unexplained)
        lines.append(row(name, *(f"{count:,}" for count in counts)))
        if name != "all":
            everything.merge(result)
    return "\n".join(lines)


def keep_fault(name: str, step: Stepper, seed: int, out: Path) -> Path:
    """Shrink the case of a fault and write it as a test case."""
    config = shapes()[name]
    path = out / f"{name.replace(' ', '_')}_{seed}.npz"
    save_case(path, config, shrink(step, config, make_case(config, seed)))
    return path


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(description="Fuzzed parity of the JAX simulator against the plain reference.")
    parser.add_argument("--steps", type=int, default=0, help="decision steps to compare in all; 0: until stopped")
    parser.add_argument(
        "--mech-steps", type=int, default=0, help="rows of living mechs to compare in all, with those kept"
    )
    parser.add_argument("--shapes", nargs="*", default=list(shapes()), help="shapes to fuzz; all by default")
    parser.add_argument("--seed", type=seed_argument, default=0, help="seed of the first case of a shape")
    parser.add_argument("--progress", type=Path, default=None, help="file of counts to go on from and to keep")
    parser.add_argument("--out", type=Path, default=CASES, help="where shrunk faults are written")
    parser.add_argument("--faults", type=int, default=3, help="stop after so many faults")
    args = parser.parse_args(argv)
    unknown = [name for name in args.shapes if name not in shapes()]
    if unknown or not args.shapes:
        parser.error(
            f"shapes must be any of {', '.join(repr(n) for n in shapes())}, got {', '.join(unknown) or 'none'}"
        )
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line; exit code 1 if a fault was found."""
    args = parse(argv)
    results = load_progress(args.progress, args.shapes)
    steppers: dict[str, Stepper] = {}
    began, done, faults = time.monotonic(), 0, 0
    try:
        while faults < args.faults:
            name = min(args.shapes, key=lambda one: results[one].mech_rows)
            config, result = shapes()[name], results[name]
            count = max(fuzz.WIDTH, CHUNK // config.num_packs**2)
            count = min(count, args.steps - done) if args.steps else count
            if count <= 0 or (args.mech_steps and sum(r.mech_rows for r in results.values()) >= args.mech_steps):
                break
            if name not in steppers:
                steppers[name] = fuzz.stepper(config)
            first = args.seed + result.steps
            made = fuzz.run(config, range(first, first + count), steppers[name])
            result.merge(made)
            done += made.steps
            for found in made.found:
                print(f"{name} seed {found.seed}: {found.why or 'FAULT'}: {', '.join(found.fields)}", flush=True)
                if found.why == FAULT:
                    faults += 1
                    print(f"small case in {keep_fault(name, steppers[name], found.seed, args.out)}", flush=True)
            save_progress(args.progress, results)
            rows = sum(r.mech_rows for r in results.values())
            print(
                f"{name}: {result.steps} steps; {rows} mech-steps in all, {time.monotonic() - began:.0f} s", flush=True
            )
    except KeyboardInterrupt:
        print("stopped")
    print(table(results))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
