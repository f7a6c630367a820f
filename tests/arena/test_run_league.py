"""The league of a run: what is submitted, rated and put into the slots, and that a resumed run repeats nothing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import league_runs
from helpers.checkpoint_states import same
from helpers.fake_env import CONFIG
from helpers.league_runs import CONFIGURED, NAMES, PARAMS, SLOTS

from echelon_jax.arena.history import history
from echelon_jax.arena.league import League
from echelon_jax.arena.records import LeagueError
from echelon_jax.arena.run_league import RunLeague
from echelon_jax.runs.checkpoint import restore, save
from echelon_jax.runs.metric_names import PATTERNS
from echelon_jax.training.league import state as on_device
from echelon_jax.training.league.state import NOBODY

CALLS = 6


def template() -> Any:
    return jax.eval_shape(league_runs.trainer().init, jax.random.key(0), PARAMS)


def begin(run_dir: Path) -> tuple[RunLeague, Any]:
    """A run at update 0; nothing is compiled, its numbers come from a counter."""

    def leaf(like: Any) -> Any:
        if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
            return jax.random.key(0)
        return jnp.asarray(np.arange(like.size).reshape(like.shape) % 7, like.dtype)

    made = jax.tree.map(leaf, template())
    league = on_device.begin(made.params, made.observation_moments, SLOTS, len(NAMES))
    companion = RunLeague(run_dir, CONFIGURED, CONFIG)
    state = made.replace(update=jnp.int32(0), league=league)
    return companion, companion.begin(league_runs.trainer(), state, None)


def played(companion: RunLeague, state: Any, calls: int) -> Any:
    """Made-up calls: the parameters move, and every member that can be drawn has played some games."""
    for _ in range(calls):
        update = int(state.update) + CONFIGURED.updates_per_call
        random = np.random.default_rng(update)
        games = random.integers(1, 9, SLOTS + 3) * np.asarray(on_device.drawable(state.league))
        results = np.stack([games, random.binomial(games, 0.6), np.zeros_like(games)], -1).astype(np.float32)
        sums = on_device.no_sums(SLOTS + 3).replace(results=jnp.asarray(results))
        params = jax.tree.map(lambda x, u=update: jnp.asarray(np.sin(1.7 * np.asarray(x) + u)), state.params)
        league = on_device.after_update(state.league, sums, 0.9)
        state = companion.after_call(state.replace(params=params, league=league, update=jnp.int32(update)))
    return state


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunLeague, Any]:
    """A run of a submission after every call."""
    run_dir = tmp_path_factory.mktemp("league")
    companion, state = begin(run_dir)
    return run_dir, companion, played(companion, state, CALLS)


def test_every_submission_is_rated_by_its_training_games(whole: tuple[Path, RunLeague, Any]) -> None:
    run_dir, companion, _ = whole
    data = League(run_dir / "league").read()
    policies = [e for e in data.entries if e.kind == "policy"]
    assert [e.name for e in policies] == [f"update {4 * n}" for n in range(1, CALLS + 1)]
    assert [e.parent for e in policies] == [None, *(e.id for e in policies[:-1])]
    assert data.periods == CALLS and all(e.games > 0 for e in policies)
    assert companion.metrics()["league/rating"] == policies[-1].rating != 1500.0
    anchors = [e.name for e in data.entries if e.role == "anchor"]
    assert len(anchors) == 1 and anchors[0] in NAMES


def test_the_metrics_of_a_league_are_those_of_the_page(whole: tuple[Path, RunLeague, Any]) -> None:
    assert set(whole[1].metrics()) == {name for name in PATTERNS if name.startswith("league/")}


def test_the_slots_hold_submitted_policies_and_the_first_one_stays(whole: tuple[Path, RunLeague, Any]) -> None:
    run_dir, companion, state = whole
    league = League(run_dir / "league")
    by_id = {e.id: e for e in league.read().entries}
    assert by_id[companion.slots[0]].name == "update 4"
    assert np.asarray(state.league.filled).all()
    for slot, who in enumerate(companion.slots):
        assert same(jax.tree.map(lambda x, i=slot: x[i], state.league.slots.params), league.policy(by_id[who]).params)


def test_the_policy_that_is_submitted_is_the_one_that_waits(whole: tuple[Path, RunLeague, Any]) -> None:
    _, companion, state = whole
    assert int(state.league.waiting_for) != NOBODY and companion.waiting is not None
    assert companion.waiting[1] == companion.last
    assert same(state.league.waiting.params, state.params)
    assert not np.asarray(state.league.window).any()


def test_a_resumed_run_repeats_nothing_and_ends_in_the_same_league(
    whole: tuple[Path, RunLeague, Any], tmp_path: Path
) -> None:
    run_dir, _, expected = whole
    companion, state = begin(tmp_path)
    state = played(companion, state, 3)
    save(tmp_path, state, CONFIGURED, CONFIG)
    remembered = json.loads(json.dumps(companion.remember()))
    played(companion, state, 2)  # beyond the checkpoint, then killed

    again = RunLeague(tmp_path, CONFIGURED, CONFIG)
    state = again.begin(league_runs.trainer(), restore(tmp_path, template(), CONFIGURED, CONFIG), remembered)
    assert League(tmp_path / "league").read().periods == 3
    assert same(played(again, state, CALLS - 3), expected)

    def without_times(run: Path) -> Any:
        data = json.loads((run / "league" / "league.json").read_text())
        return {**data, "entries": [{**e, "created_at": None} for e in data["entries"]]}

    assert without_times(tmp_path) == without_times(run_dir)


def test_the_history_is_a_matrix_of_the_recorded_games(whole: tuple[Path, RunLeague, Any]) -> None:
    found = history(League(whole[0] / "league"), most=5)
    names = [e.name for e in found.entries]
    assert set(NAMES) < set(names) and "update 24" in names and len(names) == 5
    known = ~np.isnan(found.scores)
    np.testing.assert_allclose((found.scores + found.scores.T)[known], 1.0)
    assert (known == (found.games > 0)).all() and known.any()
    assert "update 24" in found.markdown() and json.dumps(found.report())


@pytest.mark.parametrize(
    ("text", "message"), [("{", "damaged and was left as it is"), ('{"format": 99}', "has format 99")]
)
def test_a_damaged_or_newer_league_is_refused_with_nothing_lost(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "league").mkdir()
    (tmp_path / "league" / "league.json").write_text(text)
    with pytest.raises(LeagueError, match=message):
        RunLeague(tmp_path, CONFIGURED, CONFIG)
    assert (tmp_path / "league" / "league.json").read_text() == text


def test_a_first_policy_with_another_network_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    config = dataclasses.replace(
        CONFIGURED, network="modern", hidden=64, lstm=64, league_start="zoo:student zoo:champion"
    )
    with pytest.raises(LeagueError, match=r"zoo:champion has memory = 'lstm' where this run has 'mingru'"):
        RunLeague(tmp_path / "run", config, CONFIG)
    assert not list(tmp_path.iterdir())
    RunLeague(tmp_path / "run", dataclasses.replace(config, league_start="zoo:student"), CONFIG)


def test_a_slot_of_a_retired_policy_goes_first_then_that_of_the_easiest(whole: tuple[Path, RunLeague, Any]) -> None:
    run_dir, companion, _ = whole
    data = League(run_dir / "league").read()
    companion = RunLeague(run_dir, CONFIGURED, CONFIG)
    policies = [e for e in data.entries if e.kind == "policy"]
    companion.slots = [e.id for e in policies[:4]]
    score = np.array([0.5, 0.9, 0.3, 0.8, 0.7])
    assert companion._slot(data, score) == 2  # slot 0 keeps the first policy
    League(run_dir / "league").retire(policies[3].name)
    assert companion._slot(League(run_dir / "league").read(), score) == 3
