"""Runs side by side: numbers, CSV and a picture."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from echelon_jax.cli.main import main
from echelon_jax.runs.comparison import compare, curve, smooth, write_csv


def a_run(place: Path, rates: list[float | None]) -> Path:
    place.mkdir()
    rows = [{"update": u, "env_steps": 100 * u, "win_rate": rate} for u, rate in enumerate(rates, 1)]
    (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [a_run(tmp_path / "a$b", [0.0, 0.25, None, 0.5, 1.0]), a_run(tmp_path / "c", [0.5, 0.5])]


def test_a_figure_is_the_mean_over_the_last_quarter_of_the_values(runs: list[Path]) -> None:
    first, second = compare(runs, ["win_rate"])
    assert (first["update"], first["env_steps"], first["win_rate"]) == (5, 500, 1.0)
    assert second["win_rate"] == 0.5


def test_a_curve_has_no_point_where_there_is_no_value(runs: list[Path]) -> None:
    lines = [json.loads(text) for text in (runs[0] / "metrics.jsonl").read_text().splitlines()]
    steps, values = curve(lines, "win_rate")
    assert steps.tolist() == [100, 200, 400, 500] and values.tolist() == [0.0, 0.25, 0.5, 1.0]
    assert curve([], "win_rate")[0].size == 0


@pytest.mark.parametrize("window", [1, 2, 3, 10])
def test_smoothing_is_the_mean_of_the_values_so_far(window: int) -> None:
    values = np.random.default_rng(0).normal(size=7)
    expected = [values[max(0, i - window + 1) : i + 1].mean() for i in range(7)]
    assert np.allclose(smooth(values, window), expected)


def test_csv_has_a_line_per_call_and_an_empty_cell_where_there_is_no_value(runs: list[Path]) -> None:
    file = io.StringIO()
    assert write_csv(file, [(run.name, run) for run in runs]) == 7
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert [row["run"] for row in rows] == ["a$b"] * 5 + ["c"] * 2
    assert [row["win_rate"] for row in rows] == ["0.0", "0.25", "", "0.5", "1.0", "0.5", "0.5"]


def test_the_command_prints_numbers_and_draws_a_picture(
    runs: list[Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out, table = tmp_path / "picture.png", tmp_path / "all.csv"
    argv = ["runs", "--compare", *map(str, runs), "--metrics", "win_rate", "--out", str(out), "--csv", str(table)]
    assert main([*argv, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["win_rate"] for row in told["runs"]] == [1.0, 0.5] and told["picture"] == str(out)
    assert out.read_bytes().startswith(b"\x89PNG") and table.read_text().count("\n") == 8
    assert main(argv) == 0
    assert "means over the last quarter" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--compare", "nowhere"], "no metrics in nowhere"),
        (["--compare", "RUN", "--metrics", "wins"], "got wins"),
        (
            ["--compare", "RUN", "--metrics", "win_rate", "--out", "picture.nothing"],
            "out must be the name of a picture",
        ),
        (["--out", "picture.png"], "needs --compare"),
        (["--compare", "RUN", "--metrics", "win_rate", "--csv", "missing/x.csv"], "cannot write to"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(
    runs: list[Path], capsys: pytest.CaptureFixture[str], flags: list[str], sentence: str
) -> None:
    assert main(["runs", *[str(runs[1]) if flag == "RUN" else flag for flag in flags]]) == 2
    assert sentence in capsys.readouterr().err
