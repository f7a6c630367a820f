"""The directories of checkpoints: which are whole, how one takes the place of another, and what a killed process left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from echelon_jax.runs import tree_files
from echelon_jax.runs.tree_files import first_line

BEST = "best"
TRAINING_GAMES = "training games"  # what a score is made of where no validation games are played
MANIFEST = "manifest.json"
PARTIAL, REPLACED = ".partial-", ".replaced-"


def whole_checkpoints(folder: Path) -> list[Path]:
    """All whole checkpoints of a run, oldest first.

    A process that dies while it replaces a checkpoint leaves the old one aside; then that one counts.
    """
    if not folder.is_dir():
        return []
    whole = [p for p in folder.iterdir() if (p / MANIFEST).is_file()]
    found = {p.name: p for p in whole if p.name.isdigit()}
    aside = {p.name.removeprefix(REPLACED): p for p in whole if p.name.startswith(REPLACED)}
    found = {name: p for name, p in aside.items() if name.isdigit()} | found
    return [found[name] for name in sorted(found)]


def repair(folder: Path) -> None:
    """Remove what a process left that died while writing, and put back what it had set aside."""
    for leftover in folder.glob(f"{PARTIAL}*"):
        shutil.rmtree(leftover)
    for aside in folder.glob(f"{REPLACED}*"):
        target = folder / aside.name.removeprefix(REPLACED)
        if target.exists():
            shutil.rmtree(aside)
        else:
            aside.rename(target)


def put(new: Path, target: Path) -> None:
    """Rename `new` to its final name. The old directory is set aside first, so one of the two is always there."""
    aside = target.with_name(REPLACED + target.name)
    if target.exists():
        target.rename(aside)
    new.rename(target)
    tree_files.flush_one(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def put_best(folder: Path, path: Path) -> None:
    """Let a whole checkpoint be the best one as well."""
    copy = folder / f"{PARTIAL}best"
    shutil.copytree(path, copy, copy_function=link)
    put(copy, folder / BEST)


def best_score(folder: Path, scored_by: str) -> float:
    """The best score of a kind so far; -inf if there is none or it cannot be read."""
    try:
        manifest = json.loads((folder / BEST / MANIFEST).read_text())
        same_kind = manifest.get("scored_by", TRAINING_GAMES) == scored_by
        return float(manifest["score"]) if same_kind else float("-inf")
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return float("-inf")


def link(source: str, target: str) -> None:
    """Make a hard link to a file that never changes, or a copy where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def reason_of(error: BaseException) -> str:
    """The reason why writing failed, in the system's words if there are some."""
    for cause in (error, error.__cause__, error.__context__):
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
    told = re.search(r"os_error_code='(\d+)'", str(error))  # how tensorstore says it, at the end of a long line
    return os.strerror(int(told[1])) if told else first_line(error)
