"""The whole golden set, compiled as users compile; it needs ECHELON_GOLDEN and runs with `make test-all`."""

import pytest

from echelon_jax.cli.parity import SECTIONS, ParityCommand
from echelon_jax.parity.comparison import compare_all

pytestmark = pytest.mark.optimised


@pytest.mark.golden
def test_the_whole_golden_set_agrees_or_is_explained(golden):
    report = compare_all(ParityCommand(golden=golden).select(), 64, print)
    assert report.failures() == []
    assert set(SECTIONS) == {"episodes", "queries", "worlds"}
    assert report.episodes.steps > 4000
