"""What `echelon bench`, its report of a GPU and `echelon parity` print fits a terminal of 80 columns, with whole numbers.

The numbers are made up, as large as they get; nothing is compiled.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from echelon_jax.cli.bench import BENCHES, print_table
from echelon_jax.gpu import phases
from echelon_jax.gpu.cost import LEVELS
from echelon_jax.gpu.report import print_report
from echelon_jax.parity.fuzzing import fuzz
from echelon_jax.parity.recorded.compare import EVENT_TALLIES
from echelon_jax.parity.recorded.event_counts import EVENT_FIELDS, EventCount
from echelon_jax.parity.recorded.free_running import FreeRunning
from echelon_jax.parity.recorded.queries import QueryCount
from echelon_jax.parity.recorded.teacher_forced import UNEXPLAINED, Difference, FieldCount, Result
from echelon_jax.parity.report import Report
from echelon_jax.terminal import PlainConsole

WIDE = 98_765_432  # ten million random steps have ten times as many rows
FIELDS = ("pos", "contact_hostile_only", "painted_remaining", *(f"events.{name}" for name in EVENT_TALLIES))


def shown(show: Callable[[PlainConsole], None], encoding: str = "utf-8") -> str:
    """What is printed to a terminal of 80 columns."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    show(PlainConsole(file=stream, width=80, force_terminal=True, color_system=None))
    stream.seek(0)
    return stream.read()


def fits(text: str) -> None:
    """Fail at the first line that is too wide or was cut."""
    for line in text.splitlines():
        assert len(line) <= 80, line
        assert "…" not in line, line


def bench(console: PlainConsole) -> None:
    """A report of `echelon bench` of a very fast machine with a long name."""
    rows = ("arenas", "env_steps", "env_steps_per_wall_second", "mech_steps_per_wall_second", "program_temporaries_mib")
    machine = {
        "processor": "AMD EPYC 9B14 96-Core Processor @ 2.60GHz with a very long name and more of it",
        "cores": 192,
    }
    print_table({"machine": machine} | {name: dict.fromkeys(rows, 9_876_543_210.1) for name in BENCHES}, console)


def part(number: float) -> dict[str, Any]:
    """The numbers of one phase of a GPU's report."""
    names = ("launches", "kernels", "copies", "host_launches", "host_checks")
    levels = dict.fromkeys(LEVELS, number)
    return dict.fromkeys(names, number) | {"moved_bytes": number * 1e6, "microseconds": levels, "scratch_bytes": 2**38}


def gpu(console: PlainConsole) -> None:
    """A report of `echelon bench --compile-for` of a program with every phase and loops that ask the host."""
    key = "projectiles/update_projectiles/explosions/while_loop/ordered/while_loop/queues/pop_front"
    report = {
        "program": "train",
        "arenas": 1_048_576,
        "target": "h100",
        "phases": {name: part(987_654.3) for name in (*phases.NAMES, phases.OTHER)},
        "total": part(9_876_543.2),
        "memory_bytes": dict.fromkeys(("temp", "arguments", "outputs", "aliased", "generated_code"), 2**38),
        "compile_seconds": 1234.5,
        "xla_flags": ["--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL", "--xla_gpu_graph_min_graph_size=1"],
        "host_synchronised_loops": 1,
        "loops": [{"asks_host": True, "key": key, "entered": 98_765.4}],
        "estimate": {
            "what": "estimate, calibrated on an NVIDIA H100 80GB HBM3 of somebody else",
            "decisions_per_second": dict.fromkeys(LEVELS, 98_765_432.1),
            "cost_model": "numbers of the vendor's data sheet and of published measurements of launches",
            "trip_counts": "counted on the CPU at 4,096 arenas in 1,000 of 10,000 decision steps, random actions",
        },
    }
    print_report(report, console)


def parity(console: PlainConsole) -> None:
    """A report of `echelon parity` with every section, and with differences that nothing explains."""
    fields = {name: FieldCount(*[WIDE] * 5, 1.2e-38) for name in FIELDS}
    events = {name: EventCount(*[WIDE] * 5) for name in EVENT_FIELDS}
    difference = Difference("a_rather_long_name_of_an_episode_40_seed_12", WIDE, FIELDS, tuple(range(20)), UNEXPLAINED)
    found = Result(WIDE, WIDE, WIDE - 1, fields, [difference], events)
    fuzzed = fuzz.Result(WIDE, WIDE, fields, [], events)
    name = "revised partial 2 packs, a shape with a long name"
    rays = {"lattice_rays": QueryCount(WIDE, WIDE), "boxes": QueryCount(WIDE, WIDE - 1)}
    followed = FreeRunning(WIDE, WIDE, fields, events, ["a_rather_long_name_of_an_episode_40: step 3 differs in heat"])
    Report(found, rays, QueryCount(WIDE, WIDE), {name: fuzzed}, followed, 1.0).show(console)


@pytest.mark.parametrize("show", [bench, gpu, parity])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_report_fits_eighty_columns_with_whole_numbers(show: Callable[[PlainConsole], None], encoding: str) -> None:
    fits(shown(show, encoding))


def test_every_number_is_printed_whole() -> None:
    assert shown(bench).count("9,876,543,210.1") == 2 * 5
    told = shown(gpu)
    assert told.count("987,654") == (len(phases.NAMES) + 1) * (5 + len(LEVELS))  # four counts, MB, and times
    assert told.count("262,144.0") == len(phases.NAMES) + 2 + 5  # scratch of each phase and of all, and five sizes
    told = shown(parity)
    tables = 3 * (len(FIELDS) + len(EVENT_FIELDS))
    assert told.count(str(WIDE)) >= 5 * tables


def test_a_cut_table_would_be_found() -> None:
    from rich.table import Table

    def too_wide(console: PlainConsole) -> None:
        table = Table()
        for _ in range(10):
            table.add_column("kernels", no_wrap=True)
        table.add_row(*["123,456,789"] * 10)
        console.print(table)

    with pytest.raises(AssertionError):
        fits(shown(too_wide))
