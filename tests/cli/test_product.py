"""The product end to end, and the documentation: every command in README and docs is one that exists, and the main ones are run."""

import importlib.util
import json
import os
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import nbformat
import pytest

from echelon_jax.cli.main import main
from echelon_jax.intervals import wilson
from echelon_jax.runs.metric_names import PATTERNS, patterns_of
from echelon_jax.runs.progress import Progress

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TRAIN = ["train", "--preset", "smoke", "--updates", "3", "--save-every", "1"]  # validates after update 2


def blocks(language: str) -> list[tuple[str, str]]:
    """All fenced blocks of a language (a regular expression) in the documentation, as (page, text)."""
    return [
        (page.name, text)
        for page in PAGES
        for text in re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)
    ]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A smoke run as a user makes it, stopped by a signal after two of its three updates, with its evaluation games."""
    directory = tmp_path_factory.mktemp("runs") / "smoke"
    advance = Progress.advance

    def stop_at_the_second(self: Progress, update: int, *rest: Any) -> None:
        advance(self, update, *rest)
        if update == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "advance", stop_at_the_second)
        assert main([*TRAIN, "--run-dir", str(directory), "--eval-games", "4"]) == 0
    return directory


def test_a_stopped_run_leaves_a_checkpoint_and_metrics_and_plays_no_games(run_dir: Path) -> None:
    assert (run_dir / "checkpoints" / "00000002" / "manifest.json").is_file()
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == [1, 2]
    assert not (run_dir / "evaluation.json").exists()
    assert [line["validation/win_rate/against_scripted"] is None for line in lines] == [True, False]
    assert json.loads((run_dir / "checkpoints" / "best" / "manifest.json").read_text())["update"] == 2


def test_every_metric_of_a_run_is_on_the_page_and_the_page_has_no_other(run_dir: Path) -> None:
    names = set().union(*(json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()))
    found = [patterns_of(name) for name in names]
    assert all(len(patterns) == 1 for patterns in found)
    of_others = {name for name in PATTERNS if name.startswith("league/")} | {"episodes/against_*", "update/imitation"}
    assert {patterns[0] for patterns in found} == set(PATTERNS) - of_others  # without a league and a teacher


def test_a_run_describes_and_sums_itself_up(run_dir: Path) -> None:
    summary = json.loads((run_dir / "summary.json").read_text())
    assert (summary["updates"], summary["planned"], summary["stopped_early"]) == (2, 3, True)
    assert any((run_dir / "tensorboard").iterdir())


@pytest.fixture(scope="module")
def finished(run_dir: Path) -> Path:
    """The same run, gone on to its end, with its evaluation games."""
    assert main(["train", "--resume", "--run-dir", str(run_dir), "--eval-games", "4"]) == 0
    return run_dir


def test_a_run_that_was_stopped_goes_on_to_its_end_and_its_games(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == [1, 2, 3]
    assert not json.loads((finished / "summary.json").read_text())["stopped_early"]
    games = json.loads((finished / "evaluation.json").read_text())
    assert set(games) == {"scripted", "random"}
    for result in games.values():
        assert result["games"] == result["wins"] + result["draws"] + result["losses"] == 4
        ends = [result[f"ended_by_{reason}"] for reason in ("zone_control", "elimination", "time_up")]
        assert sum(ends) == pytest.approx(1.0)  # every game has a real end
    assert main(["runs", str(finished.parent), "--json"]) == 0
    [listed] = json.loads(capsys.readouterr().out)
    assert (listed["updates"], listed["checkpoints"]) == (3, 3)
    assert set(listed["evaluation"]) == {"scripted", "random"}


def test_evaluating_the_run_again_gives_the_same_games_and_pictures_of_them(
    finished: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run_dir = finished
    pictures = ["--out", str(tmp_path), "--gif", "3"]
    assert main(["evaluate", str(run_dir), "--games", "4", "--arenas", "4", "--json", *pictures]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["evaluation.json", "evaluation.png", "game3.gif"]
    printed = json.loads(capsys.readouterr().out)
    recorded = json.loads((run_dir / "evaluation.json").read_text())
    assert printed["update"] == 3
    assert printed["against"] == recorded


def test_resuming_with_another_configuration_names_the_field(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = [*TRAIN[:3], "--gamma", "0.9", "--resume", "--run-dir", str(run_dir)]
    assert main(other) == 2
    assert "gamma" in capsys.readouterr().err


# -- Notebooks: they play at the sizes above, so that most of their programs are compiled already --------------------------------


def load_tool() -> Any:
    """tools/notebooks.py as a module."""
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools" / "notebooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = load_tool()
PICTURES = {"quickstart": 2, "evaluate_a_policy": 3, "league": 1, "explore_the_rules": 3, "parity_report": 1}
# Words that each prints near its end.
RESULTS = {
    "quickstart": "after update 3",
    "evaluate_a_policy": "correlation",
    "league": "won",
    "explore_the_rules": "of the columns can be seen",
    "parity_report": "rows agree in every field",
}


def printed(book: Any) -> str:
    """The text that a notebook printed."""
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in outputs)


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every notebook, executed at toy size; the quickstart's run lies in `run`."""
    run = tmp_path_factory.mktemp("notebooks") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ECHELON_NOTEBOOKS", "small")
        return dict(zip(TOOL.NAMES, TOOL.execute(TOOL.NAMES, run), strict=True)) | {"run": run}


@pytest.mark.extended
@pytest.mark.parametrize("name", TOOL.NAMES)
def test_an_executed_notebook_shows_its_figures_under_the_backend_of_jupyter(
    executed: dict[str, Any], name: str
) -> None:
    assert TOOL.pictures(executed[name]) == PICTURES[name]
    assert RESULTS[name] in printed(executed[name])


@pytest.mark.extended
def test_the_quickstart_leaves_a_run_behind(executed: dict[str, Any]) -> None:
    assert (executed["run"] / "checkpoints" / "00000003" / "manifest.json").is_file()


@pytest.mark.parametrize("name", TOOL.NAMES)
def test_a_stored_notebook_shows_what_its_present_source_made(name: str) -> None:
    """`python tools/notebooks.py NAME` makes it anew."""
    book = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    assert book.metadata.echelon.source == TOOL.fingerprint(TOOL.read_source(name)) == TOOL.fingerprint(book)
    assert TOOL.pictures(book) == PICTURES[name]
    assert not [o for cell in book.cells for o in cell.get("outputs", []) if o.output_type == "error"]
    assert "Run time: " in " ".join(book.cells[0].source.split())
    assert str(Path.home()) not in json.dumps(book), "a path of the machine that made it"


def test_every_notebook_has_a_source_and_outputs() -> None:
    files = {path.stem: path.suffix for path in (ROOT / "notebooks").iterdir() if path.suffix in (".py", ".ipynb")}
    assert set(files) == set(TOOL.NAMES)


# -- The documentation -----------------------------------------------------------------------------------------------------


def test_every_command_of_the_documentation_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    seen = 0
    for page, text in blocks("(?:ba)?sh"):
        for line in filter(None, map(str.strip, text.splitlines())):
            words = shlex.split(line, comments=True)
            if not words:
                continue
            seen += 1
            program = Path(words[0]).name
            if program == "make":
                assert set(words[1:]) <= targets, (page, line)
            elif program == "echelon":
                with pytest.raises(SystemExit) as stopped:
                    main([*words[1 : 3 if words[1] == "arena" else 2], "--help"])
                assert stopped.value.code == 0, (page, line)
            elif program.startswith("python"):
                made_by_a_run = words[1].startswith("runs/")
                assert words[1] == "-m" or made_by_a_run or (ROOT / words[1]).is_file(), (page, line)
            else:
                assert program in ("pip", "cd", "export", "docker") or (ROOT / words[0]).is_file(), (page, line)
    assert seen >= 6


def test_every_flag_of_the_documentation_exists(capsys: pytest.CaptureFixture[str]) -> None:
    for page, text in blocks("(?:ba)?sh"):
        for line in filter(None, map(str.strip, text.splitlines())):
            words = shlex.split(line, comments=True)
            if words and Path(words[0]).name == "echelon":
                with pytest.raises(SystemExit):
                    main([*words[1 : 3 if words[1] == "arena" else 2], "--help"])
                shown = capsys.readouterr().out
                for flag in (word.split("=")[0] for word in words if word.startswith("--")):
                    assert flag in shown, (page, line, flag)


@pytest.mark.extended
def test_the_library_examples_of_the_readme_run(capsys: pytest.CaptureFixture[str]) -> None:
    make, load = (text for page, text in blocks("python") if page == "README.md")
    names: dict[str, Any] = {}
    exec(compile(make, "README.md", "exec"), names)
    assert "(64, 10, 1102) (64, 10) (64,)" in capsys.readouterr().out
    assert '"runs/cpu-40-seed0"' in load  # the zoo's policy is one of that preset
    exec(compile(load.replace("runs/cpu-40-seed0", "zoo:champion"), "README.md", "exec"), names)
    assert names["action"].shape[:2] == names["value"].shape == (64, 10)


@pytest.mark.parametrize(
    ("wins", "games", "low", "high"), [(0, 0, 0.0, 1.0), (50, 100, 0.404, 0.596), (0, 10, 0.0, 0.278)]
)
def test_the_wilson_interval_has_its_textbook_values(wins: int, games: int, low: float, high: float) -> None:
    assert wilson(wins, games) == pytest.approx((low, high), abs=1e-3)
