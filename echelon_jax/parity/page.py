"""The tables of docs/results/parity-tables.md, from what `echelon parity --json` printed.

Use: `python -m echelon_jax.parity.page run.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon_jax.markdown import row
from echelon_jax.parity.report import COLUMNS


def rows_of(heading: str, counts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A table of counts by field or by event type, with the largest difference where one is kept."""
    largest = any("largest" in count for count in counts.values())
    names = [heading, *(column.replace("_", " ") for column in COLUMNS), *(["largest difference"] if largest else [])]
    yield row(*names)
    yield row(*["---"] * len(names))
    for name, count in counts.items():
        values = [name, *(f"{count[column]:,}" for column in COLUMNS)]
        if largest:
            values.append(f"{count['largest']:.2g}")
        yield row(*values)


def tables(data: Mapping[str, Any]) -> str:
    """Markdown of every section that the run had."""
    lines: list[str] = []
    if data["episodes"] is not None:
        made = data["episodes"]
        lines += [row("step", "explained by", "fields"), row(*["---"] * 3)]
        for d in made["differences"]:
            fields = ", ".join(d["fields"][:6]) + (" ..." if len(d["fields"]) > 6 else "")
            lines.append(row(f"{d['episode']} row {d['row']}", d["explanation"], fields))
        lines += ["", *rows_of("field", made["fields"]), "", *rows_of("event", made["events"]), ""]
    queries = {**(data["rays"] or {}), **({"worlds, bit for bit": data["worlds"]} if data["worlds"] else {})}
    if queries:
        lines += [row("recorded queries", "rows", "exact"), row(*["---"] * 3)]
        lines += [row(name.replace("_", " "), f"{q['rows']:,}", f"{q['exact']:,}") for name, q in queries.items()]
        lines.append("")
    for name, made in (data["fuzz"] or {}).items():
        lines += [f"{name}: {made['steps']:,} steps, {made['mech_rows']:,} mech-steps", ""]
        lines += [*rows_of("field", made["fields"]), "", *rows_of("event", made["events"]), ""]
    if data["reference"] is not None:
        made = data["reference"]
        lines += [f"The reference on its own: {made['steps']:,} steps of {made['episodes']} episodes", ""]
        lines += [*rows_of("field", made["fields"]), "", *rows_of("event", made["events"]), ""]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables of one run of `echelon parity --json`."""
    (path,) = sys.argv[1:] if argv is None else argv
    print(tables(json.loads(Path(path).read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
