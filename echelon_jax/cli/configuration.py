"""Saved configurations, read back exactly with unknown keys refused by name, and the page that lists every field.

`python -m echelon_jax.cli.configuration > docs/configuration.md` makes the page.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from echelon_jax.cli.errors import UsageError, checked
from echelon_jax.config import SWITCHES, EnvConfig
from echelon_jax.fields import MAX_WHOLE, Allowed, allowed, help_texts
from echelon_jax.markdown import row
from echelon_jax.runs import migrations
from echelon_jax.training.config import PRESETS, TrainConfig

# Keys of a run's config.json.
DESCRIBED = ("version", "jax", "git", "run", "format", "start_from", "started_from", "train", "env")


def read_configuration(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the training and environment fields of a config.json, or of the run directory that holds one.

    Fields that a run of an older version does not have get the value that did then what the run did (runs/migrations.py);
    those that a file written by hand leaves out, one without "version", are left to their defaults by the caller.

    Raises:
        UsageError: missing, not JSON, or with a key that no configuration has (it is named).
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        described = json.loads(file.read_text())
    except OSError as error:
        raise UsageError(f"config {file} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"config {file} is not JSON: {error}") from error
    if not isinstance(described, dict) or not isinstance(described.get("train"), dict):
        raise UsageError(f"config {file} must have the sections train and env of a run's config.json")
    sections = migrations.renamed(described["train"]), described.get("env", {})
    _refuse_unknown(file, "", described, DESCRIBED)
    for section, fields, kind in zip(("train.", "env."), sections, (TrainConfig, EnvConfig), strict=True):
        _refuse_unknown(file, section, fields, [f.name for f in dataclasses.fields(kind)])
    if "version" not in described:
        return sections
    train, env = checked(migrations.train_config, sections[0]), checked(migrations.env_config, sections[1])
    return dataclasses.asdict(train), dataclasses.asdict(env)


def _refuse_unknown(file: Path, section: str, found: dict[str, Any], known: Any) -> None:
    unknown = sorted(set(found) - set(known))
    if unknown:
        names = ", ".join(f"{section}{name}" for name in unknown)
        raise UsageError(f"config {file} has {names}, which this version does not know")


def page() -> str:
    """The text of docs/configuration.md."""
    presets = [TrainConfig.preset(name) for name in PRESETS]
    lines = [
        "# Configuration",
        "",
        "Every field is a flag of `echelon train` (`learning_rate` is `--learning-rate`), is saved in `RUN/config.json`, and",
        "is read back by `--config RUN/config.json`; flags beside it override single fields.",
        "A key that no field has is refused by name.",
        "This page is made by `python -m echelon_jax.cli.configuration`.",
        "",
        "## Training",
        "",
        row("field", *PRESETS, "allowed", "meaning"),
        row(*["---"] * (len(PRESETS) + 3)),
    ]
    texts, may_be = help_texts(TrainConfig), allowed(TrainConfig)
    for name in texts:
        values = [_show(getattr(preset, name)) for preset in presets]
        lines.append(row(f"`{name}`", *values, _range(may_be[name]), texts[name]))
    lines += ["", "## Game", "", row("field", "revised", "original", "allowed", "meaning"), row(*["---"] * 5)]
    texts, may_be = help_texts(EnvConfig), allowed(EnvConfig)
    rule_sets = EnvConfig.revised(), EnvConfig.original()
    for name in texts:
        values = [_show(getattr(made, name)) for made in rule_sets]
        lines.append(row(f"`{name}`", *values, _range(may_be[name]), texts[name]))
    lines += [
        "",
        "`--size`, `--packs` and `--mode` are short for `size_x` and `size_y`, `num_packs` and `observation_mode`; `--rules`",
        f"sets all {len(SWITCHES)} switches, observation, actions and reward at once.",
        "The presets play on maps of 28 (smoke), 40 (cpu) and 60 (gpu) voxels.",
        "",
    ]
    return "\n".join(lines)


def _show(value: Any) -> str:
    return "-" if value is None or value == "" else f"{value}"


def _range(may_be: Allowed) -> str:
    return may_be.words().removesuffix(f" to {MAX_WHOLE}")


if __name__ == "__main__":
    sys.stdout.write(page())
