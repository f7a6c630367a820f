"""Play policies of this project in the original's own arena, in a checkout of the original.

    python tools/original_arena.py CHECKOUT zoo:original --against zoo:original-pupil --matches 20

Every policy is exported as the original's checkpoint file. Then the checkout's league script makes a league of its own beside
those files, takes in those of --against, and plays the matches of the first policy as a candidate against them; nothing in the
checkout is changed. It runs with --python, whose torch it needs. The original lets games that the zone has decided go on, some
of them for very long, so --minutes ends it.

The commands are those that the original's league script had when its rules were written down; no checkout was at hand to try
them with.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from echelon_jax.intervals import wilson

MARK = b"eval-candidate"  # the command that only the league script has


def league_script(checkout: Path) -> Path:
    """Return the script of a checkout that has the command `eval-candidate`.

    Raises:
        SystemExit: there is none, or more than one.
    """
    files = (
        p for p in checkout.rglob("*.py") if not any(part.startswith(".") for part in p.relative_to(checkout).parts)
    )
    found = sorted(p for p in files if MARK in p.read_bytes() and b"add_parser" in p.read_bytes())
    if len(found) != 1:
        names = ", ".join(str(p.relative_to(checkout)) for p in found) or "none"
        raise SystemExit(f"script must be named, because {checkout} has not one league script: {names}")
    return found[0]


def games_of(text: str) -> list[dict[str, Any]]:
    """Return the games of a log: a JSON list, an object that holds one, or an object a line.

    Raises:
        ValueError: it is none of these.
    """
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    else:
        lists = [v for v in whole.values() if isinstance(v, list)] if isinstance(whole, dict) else [whole]
        rows = lists[0] if lists else [whole]
    return [row for row in rows if isinstance(row, dict) and "candidate_score" in row]


def summary(games: list[dict[str, Any]]) -> str:
    """Return wins, draws and losses of the candidate in one line."""
    scores = [float(game["candidate_score"]) for game in games]
    won, drawn = scores.count(1.0), scores.count(0.5)
    low, high = wilson(won, len(scores))
    lost = len(scores) - won - drawn
    return f"{len(scores)} games: {won} won ({low:.0%} to {high:.0%}), {drawn} drawn, {lost} lost"


def main() -> None:
    """Export, play and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="directory of the original")
    parser.add_argument("policy", help="run, checkpoint or zoo:NAME with the network `original`, 128 and 128 units")
    parser.add_argument("--against", nargs="+", default=["zoo:original-pupil"], help="policies of the same game")
    parser.add_argument("--matches", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/original-arena"), help="for the files and the league")
    parser.add_argument("--script", type=Path, help="the league script, if it is not found by itself")
    parser.add_argument("--python", default=sys.executable, help="interpreter with the original's packages")
    parser.add_argument("--minutes", type=float, default=60.0, help="time limit of the matches")
    asked = parser.parse_args()
    if not asked.checkout.is_dir():
        parser.error(f"checkout must be a directory, got {asked.checkout}")
    if asked.matches < 1:
        parser.error(f"matches must be 1 or more, got {asked.matches}")
    script = (asked.script or league_script(asked.checkout)).resolve()
    if not script.is_file():
        parser.error(f"script must be a file, got {script}")

    if not asked.minutes > 0:
        parser.error(f"minutes must be above 0, got {asked.minutes}")
    try:
        from echelon_jax.export.original import write_original
    except ImportError:
        parser.error("torch must be installed to write the original's files: pip install 'echelon-jax[torch]'")
    from echelon_jax.export.weights import ExportError
    from echelon_jax.runs.checkpoint import CheckpointError, load_policy

    out, files = asked.out.resolve(), []
    for number, name in enumerate([asked.policy, *asked.against]):
        try:
            files.append(str(write_original(load_policy(name), out / f"policy{number}.pt")))
        except (CheckpointError, ExportError) as error:
            parser.error(f"{name}: {error}")
    league, log = out / "league.json", out / "games.log"
    log.unlink(missing_ok=True)

    def run(*words: str, seconds: float | None = None) -> None:
        command = [asked.python, str(script), "--league", str(league), *words]
        try:
            done = subprocess.run(command, cwd=asked.checkout, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise SystemExit(
                f"the league script was stopped after {asked.minutes:g} minutes; --minutes allows more"
            ) from None
        except OSError as error:
            raise SystemExit(
                f"python must be an interpreter, and {asked.python} cannot be run: {error.strerror}"
            ) from None
        if done.returncode:
            raise SystemExit(f"the league script ended with {done.returncode}: {' '.join(command)}")

    run("init", "--force")
    for file in files[1:]:
        run("add", file, "--kind", "commander")
    matches = ("--matches", str(asked.matches), "--seed", str(asked.seed), "--log", str(log))
    run("eval-candidate", files[0], *matches, seconds=60 * asked.minutes)
    if log.is_file():
        try:
            print(summary(games_of(log.read_text())))
        except ValueError:
            raise SystemExit(f"{log} holds games in a form that is not known here") from None


if __name__ == "__main__":
    main()
