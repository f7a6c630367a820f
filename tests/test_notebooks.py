"""The notebooks run from top to bottom in a real kernel, at toy size."""

import os
from pathlib import Path

import jupytext
import nbclient
import nbformat
import pytest

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notebooks") / "run"


def run(name: str, run_dir: Path) -> list[str]:
    """Execute a notebook and return the text of its outputs; an error in a cell is raised with its traceback."""
    book = jupytext.read(NOTEBOOKS / f"{name}.py")
    environment = os.environ | {"ECHELON_NOTEBOOKS": "small", "ECHELON_NOTEBOOK_RUN": str(run_dir), "MPLBACKEND": "agg"}
    client = nbclient.NotebookClient(book, timeout=900, resources={"metadata": {"path": str(NOTEBOOKS.parent)}})
    client.execute(env=environment)
    nbformat.validate(book)
    texts = []
    for output in (output for cell in book.cells for output in cell.get("outputs", [])):
        texts.append(output.get("text", "") or output.get("data", {}).get("text/plain", ""))
    return texts


def test_the_parity_report_finds_that_all_agrees(run_dir: Path) -> None:
    told = "".join(run("parity_report", run_dir))
    assert "Everything that was compared agrees or is explained" in told
    assert "rows agree in every field" in told


@pytest.mark.slow
def test_a_policy_is_trained_in_five_minutes_and_evaluated_in_depth(run_dir: Path) -> None:
    told = "".join(run("train_in_five_minutes", run_dir))
    assert (run_dir / "checkpoints" / "00000002" / "manifest.json").is_file()
    assert "after update 2" in told
    told = "".join(run("evaluate_a_policy", run_dir))
    assert "correlation" in told
    assert (run_dir / "game0.gif").stat().st_size > 1000
