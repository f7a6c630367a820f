"""Descriptions of runs: the description at the start, the summary at the end, and a list of all runs."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

from echelon_jax import __version__
from echelon_jax.config import EnvConfig
from echelon_jax.training.config import TrainConfig


def git_revision(file: Path = Path(__file__)) -> str | None:
    """Return the commit that a file of this package is checked out at, with "+" behind it if tracked files differ.

    None outside of git, and where the repository around the file does not track it: a package that is installed inside of
    somebody else's project is not at that project's commit.
    """
    commands = (
        ["ls-files", "--error-unmatch", file.name],
        ["rev-parse", "HEAD"],
        ["status", "--porcelain", "--untracked-files=no"],
    )
    try:
        answers = [
            subprocess.run(
                ["git", "-C", str(file.parent), *command], capture_output=True, text=True, timeout=10, check=True
            )
            for command in commands
        ]
    except (OSError, subprocess.SubprocessError):
        return None
    _, commit, changes = (answer.stdout.strip() for answer in answers)
    return f"{commit}+" if changes else commit


def describe(config: TrainConfig, env_config: EnvConfig) -> dict[str, Any]:
    """Return the contents of a run's config.json: both configurations whole, versions and git revision."""
    import jax

    return {
        "version": __version__,
        "jax": jax.__version__,
        "git": git_revision(),
        "train": dataclasses.asdict(config),
        "env": dataclasses.asdict(env_config),
    }


@dataclasses.dataclass(frozen=True)
class RunSummary:
    """One run as `echelon runs` lists it; None for what the run's files do not say."""

    path: Path
    what: str  # game, network and opponent in a few words
    git: str | None
    updates: int
    planned: int | None
    win_rate: float | None  # best over windows of calls
    evaluation: dict[str, float] | None  # win rate by opponent, of the last evaluation
    checkpoints: int


def best_win_rate(lines: list[dict[str, Any]], episodes: int = 50) -> float | None:
    """Return the best win rate over consecutive calls with at least so many ended episodes, or over all if there are fewer."""
    best, wins, played = None, 0.0, 0.0
    for line in lines:
        if line.get("win_rate") is not None:
            wins, played = wins + line["win_rate"] * line["episodes"], played + line["episodes"]
        if played >= episodes:
            best, wins, played = max(best or 0.0, wins / played), 0.0, 0.0
    return best if best is not None else (wins / played if played else None)


def read_lines(run_dir: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics.jsonl; none if there is no file. A line that a crash cut short is left out."""
    try:
        texts = (run_dir / "metrics.jsonl").read_text().splitlines()
    except OSError:
        return []
    lines = []
    for text in texts:
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return lines


def summary_of(run_dir: Path) -> RunSummary:
    """Return the summary of a run directory.

    Raises:
        ValueError: it holds no readable config.json.
    """
    try:
        described = json.loads((run_dir / "config.json").read_text())
        train, env = described["train"], described["env"]
        what = (
            f"{train['network']} against {train['opponent']}, {5 * env['num_packs']}v{5 * env['num_packs']} on "
            f"{env['size_x']}x{env['size_y']}, {env['reward']} reward, seed {train['seed']}"
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{run_dir} holds no readable config.json: {error}") from error
    lines = read_lines(run_dir)
    evaluation = None
    try:
        found = json.loads((run_dir / "evaluation.json").read_text())
        evaluation = {name: float(result["win_rate"]) for name, result in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        evaluation = None  # not evaluated yet, or by another version
    return RunSummary(
        path=run_dir,
        what=what,
        git=described.get("git"),
        updates=int(lines[-1]["update"]) if lines else 0,
        planned=train.get("updates"),
        win_rate=best_win_rate(lines),
        evaluation=evaluation,
        checkpoints=sum(p.name.isdigit() for p in (run_dir / "checkpoints").glob("*")),
    )


def list_runs(folder: Path) -> list[RunSummary]:
    """Return all runs under a directory (those of several seeds included), by name; directories that are no runs are left out."""
    found = []
    for file in sorted({*folder.glob("*/config.json"), *folder.glob("*/seed*/config.json")}):
        try:
            found.append(summary_of(file.parent))
        except ValueError:
            continue
    return found


def write_summary(run_dir: Path, seconds: float, stopped: bool) -> None:
    """Write RUN/summary.json: the configuration of the run, the updates done, its best and last figures.

    Raises:
        CheckpointError: it cannot be written.
    """
    from echelon_jax.runs.checkpoint import CheckpointError

    told = summary_of(run_dir)
    lines = read_lines(run_dir)
    shown = ("win_rate", "return_per_mech", "zone_share", "episode_length", "env_steps", "env_steps_per_second")
    summary = {
        "what": told.what,
        "git": told.git,
        "updates": told.updates,
        "planned": told.planned,
        "stopped_early": stopped,
        "seconds": round(seconds, 1),
        "best_win_rate": told.win_rate,
        "last": {name: lines[-1].get(name) for name in shown} if lines else {},
    }
    try:
        (run_dir / "summary.json").write_text(json.dumps(summary, indent=1))
    except OSError as error:
        raise CheckpointError(f"cannot write to {run_dir}: {error.strerror or error}") from error
