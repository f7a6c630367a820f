"""Execute the notebooks and store them with their outputs beside their sources.

    ECHELON_NOTEBOOKS=small python tools/notebooks.py
    ECHELON_NOTEBOOKS=small python tools/notebooks.py explore_the_rules

They run in one kernel, emptied in between, under the ordinary inline backend. A stored notebook knows the fingerprint of the
source that it was made from, so a test can say whether its outputs are those of the present source.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jupytext
import nbclient
import nbformat

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
# In an order in which a later one may read the run of the first.
NAMES = ("quickstart", "evaluate_a_policy", "league", "explore_the_rules", "parity_report")


def read_source(name: str) -> Any:
    """Return the notebook of a source, without outputs."""
    return jupytext.read(FOLDER / f"{name}.py")


def fingerprint(book: Any) -> str:
    """Return a fingerprint of a notebook's cells, outputs not included."""
    cells = [(cell.cell_type, cell.source) for cell in book.cells]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()[:16]


def pictures(book: Any) -> int:
    """Return how many pictures a notebook shows."""
    shown = [output.get("data", {}) for cell in book.cells for output in cell.get("outputs", [])]
    return sum(any(kind.startswith("image/") for kind in data) for data in shown)


def execute(names: Sequence[str], run_dir: Path) -> list[Any]:
    """Execute notebooks in one kernel and return them with their outputs.

    `run_dir` is where the quickstart's run goes, which others read.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    books = [read_source(name) for name in names]
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    environment["ECHELON_NOTEBOOK_RUN"] = str(run_dir)
    whole = nbformat.v4.new_notebook(cells=[])
    client = nbclient.NotebookClient(whole, timeout=None, resources={"metadata": {"path": str(FOLDER)}})
    with client.setup_kernel(env=environment):
        number = 0
        for book in books:
            began = time.perf_counter()
            whole.cells += [nbformat.v4.new_code_cell("%reset -f"), *book.cells]
            for cell in whole.cells[number:]:
                client.execute_cell(cell, number)
                number += 1
            book.metadata["echelon"] = {"source": fingerprint(book), "seconds": round(time.perf_counter() - began)}
    for book in books:
        tidy(book, run_dir)
        nbformat.validate(book)
    return books


def tidy(book: Any, run_dir: Path) -> None:
    """Leave out of an executed notebook what differs from one execution to the next for no reason, such as where its run lies."""
    count = 0
    for number, cell in enumerate(book.cells):
        cell["id"] = f"cell-{number}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            count += 1
            cell["execution_count"] = count
            # Remarks of a compiler on a busy machine are no result.
            cell["outputs"] = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                for part, names in ((output, ("text",)), (output.get("data", {}), ("text/plain", "text/html"))):
                    part.update({n: part[n].replace(str(run_dir), "runs/notebook") for n in names if n in part})
                if output.output_type == "execute_result":
                    output["execution_count"] = count


def main() -> None:
    """Execute notebooks and store them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help=f"which; by default {', '.join(NAMES)}")
    parser.add_argument(
        "--run-dir", type=Path, help="where the quickstart's run goes; by default a place for this time"
    )
    flags = parser.parse_args()
    names = flags.names or list(NAMES)
    with tempfile.TemporaryDirectory() as place:
        books = execute(names, (flags.run_dir or Path(place) / "run").absolute())
    for name, book in zip(names, books, strict=True):
        path = FOLDER / f"{name}.ipynb"
        nbformat.write(book, path)
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB, {pictures(book)} pictures, {book.metadata.echelon}")


if __name__ == "__main__":
    main()
