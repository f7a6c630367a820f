"""Metrics: sums agree with a plain count, every name is explained, and every sink gets every line once."""

import json
import struct
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.fake_env import CountingAgent, FakeEnv, fake_params
from helpers.made_up_runs import PLAIN_FIELDS
from jax.interpreters.partial_eval import dce_jaxpr

from echelon_jax.config import EnvConfig
from echelon_jax.env.state import REWARD_COMPONENTS, STATISTICS, Info, Step
from echelon_jax.rules.mechs import CLASS_NAMES, PACK_CLASSES
from echelon_jax.runs.checkpoint import CheckpointError
from echelon_jax.runs.clock import CallClock, rollout_alone
from echelon_jax.runs.description import best_win_rate, describe, git_revision, list_runs, write_summary
from echelon_jax.runs.metric_names import page, patterns_of
from echelon_jax.runs.sinks import JsonLines, Sinks, TensorBoard, drop_lines_after
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.metrics import Metrics, add_step, no_sums, summarize
from echelon_jax.training.ppo import UpdateMetrics
from echelon_jax.training.trainer import make_train

ROOT = Path(__file__).resolve().parents[2]
ARENAS, MECHS, TEAM = 6, 10, 5


def random_step(seed: int) -> tuple[Step, np.ndarray]:
    """A step with every number drawn, and which learner mechs lived at its decision."""
    rng = np.random.default_rng(seed)

    def flags(*shape: int) -> jax.Array:
        return jnp.asarray(rng.random(shape) < 0.6)

    def numbers(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    def whole(top: int) -> jax.Array:
        return jnp.asarray(rng.integers(0, top, ARENAS), jnp.int32)

    info = Info(
        reward_components=numbers(ARENAS, MECHS, len(REWARD_COMPONENTS)),
        alive=flags(ARENAS, MECHS),
        in_zone=flags(ARENAS, MECHS),
        zone_control=numbers(ARENAS),
        score=numbers(ARENAS, 2),
        team_hp=numbers(ARENAS, 2),
        statistics=numbers(ARENAS, len(STATISTICS), 2),
        step_count=whole(99),
        reason=whole(4),
        winner=whole(3),
        lost_shots=whole(3),
        lost_clouds=whole(3),
    )
    nothing, no = jnp.zeros((ARENAS, MECHS, 1)), flags(ARENAS, MECHS)
    step = Step(nothing, info.reward_components.sum(-1), no, no, flags(ARENAS), nothing, info)
    return step, rng.random((ARENAS, TEAM)) < 0.7


def test_sums_by_class_and_side_are_those_of_a_plain_count() -> None:
    step, alive = random_step(3)
    sums = add_step(no_sums(), step, jnp.asarray(alive), jnp.zeros(ARENAS))
    info = jax.tree.map(np.asarray, step.info)
    decisions, deaths, zone = (dict.fromkeys(range(4), 0) for _ in range(3))
    components = np.zeros((4, len(REWARD_COMPONENTS)))
    sides = np.zeros((2, 3))
    for arena in range(ARENAS):
        side = arena % 2
        for i in range(TEAM):
            mech, kind = side * TEAM + i, PACK_CLASSES[i]
            lives = info.alive[arena, mech]
            decisions[kind] += alive[arena, i]
            deaths[kind] += alive[arena, i] and not lives
            zone[kind] += lives and info.in_zone[arena, mech]
            components[kind] += info.reward_components[arena, mech] * alive[arena, i]
        if step.episode_over[arena]:
            sides[side] += [1, info.winner[arena] == side, info.winner[arena] == 2]
    np.testing.assert_allclose(sums.class_decisions, list(decisions.values()))
    np.testing.assert_allclose(sums.class_deaths, list(deaths.values()))
    np.testing.assert_allclose(sums.class_in_zone, list(zone.values()))
    np.testing.assert_allclose(sums.class_components, components, atol=1e-5)
    np.testing.assert_allclose(sums.sides, sides)


def test_what_is_summed_by_class_or_side_adds_up_to_the_whole() -> None:
    step, alive = random_step(4)
    sums = add_step(no_sums(), step, jnp.asarray(alive), jnp.zeros(ARENAS))
    for name in ("decisions", "survived", "in_zone", "deaths"):
        assert float(getattr(sums, f"class_{name}").sum()) == float(getattr(sums, name))
    np.testing.assert_allclose(sums.class_components.sum(0), sums.components, atol=1e-5)
    assert sums.sides.sum(0).tolist() == [float(sums.episodes), float(sums.wins), float(sums.draws)]


def some_line() -> dict[str, float | None]:
    step, alive = random_step(5)
    sums = add_step(no_sums(), step, jnp.asarray(alive), jnp.zeros(ARENAS))
    update = UpdateMetrics(**{name: jnp.ones((1, 2)) for name in PLAIN_FIELDS})
    call = jax.tree.map(lambda x: x[None], Metrics(sums, update, *(jnp.float32(0),) * 3))
    return summarize([call], TEAM, ["a", "b"], "scripted")


def test_every_number_of_an_update_is_explained_by_one_entry_of_the_page() -> None:
    for name in some_line():
        assert len(patterns_of(name)) == 1, name


def test_the_page_of_metrics_is_up_to_date() -> None:
    written = (ROOT / "docs" / "metrics.md").read_text()
    assert written == page(), "run: python -m echelon_jax.runs.metric_names > docs/metrics.md"


def test_the_win_rate_by_side_and_opponent_is_in_the_line() -> None:
    line = some_line()
    assert line["win_rate/against_scripted"] == line["win_rate"]
    assert {f"win_rate/as_{side}" for side in ("blue", "red")} <= set(line)
    assert {f"class/{name}/reward_per_decision" for name in CLASS_NAMES} <= set(line)


# -- Sinks ------------------------------------------------------------------------------------------------------------


def tensorboard_scalars(run_dir: Path) -> list[tuple[int, str, float]]:
    """(update, name, value) of every event under a run, read from the record files themselves."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for file in sorted((run_dir / "tensorboard").iterdir()):
        data, at = file.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack("<Q", data[at : at + 8])
            event = Event.FromString(data[at + 12 : at + 12 + size])
            found += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
            at += 16 + size
    return found


class FullDisk:
    """A sink whose disk is full when it is closed."""

    def write(self, line):
        raise CheckpointError("cannot write the line")

    def close(self):
        raise CheckpointError("cannot close the file")


def test_a_failure_to_close_does_not_hide_the_failure_that_ended_the_run(tmp_path: Path) -> None:
    after = FullDisk(), JsonLines(tmp_path)
    with pytest.raises(CheckpointError, match="cannot write the line") as raised, Sinks(after) as sinks:
        sinks.write({"update": 1})
    assert raised.value.__notes__ == ["cannot close the file"]
    with pytest.raises(CheckpointError, match="cannot close the file"), Sinks(after):
        pass


def test_a_full_disk_is_one_sentence_of_tensorboard_too_and_never_a_wait(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    board.writer.flush = full
    for _ in range(30):  # more than any queue holds
        with pytest.raises(CheckpointError, match=r"cannot write to .*tensorboard: No space left on device"):
            board.write({"update": 1, "win_rate": 0.5})
    with pytest.raises(CheckpointError, match="No space left on device"):
        board.close()


def test_the_file_and_tensorboard_get_every_line(tmp_path: Path) -> None:
    with Sinks([JsonLines(tmp_path), TensorBoard(tmp_path)]) as sinks:
        for update in (1, 2):
            sinks.write({"update": update, "win_rate": update / 4, "draw_rate": None})
    lines = [json.loads(text) for text in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"update": u, "win_rate": u / 4, "draw_rate": None} for u in (1, 2)]
    assert tensorboard_scalars(tmp_path) == [(1, "win_rate", 0.25), (2, "win_rate", 0.5)]


def test_all_sinks_are_closed_when_a_run_fails(tmp_path: Path) -> None:
    closed = []
    sink = types.SimpleNamespace(write=lambda line: None, close=lambda: closed.append(True))
    with pytest.raises(RuntimeError), Sinks([sink, sink]):
        raise RuntimeError
    assert closed == [True, True]


def test_lines_beyond_the_checkpoint_are_dropped_when_a_run_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text("".join(json.dumps({"update": u}) + "\n" for u in (1, 2, 3)) + '{"upd')
    assert drop_lines_after(file, 2) == 2
    assert [json.loads(text)["update"] for text in file.read_text().splitlines()] == [1, 2]
    assert drop_lines_after(file, 2) == 0
    assert drop_lines_after(tmp_path / "nothing", 2) == 0


# -- Console, clock, runs ---------------------------------------------------------------------------------------------


def test_the_clock_measures_from_lap_to_lap(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 13.0, 18.0])
    monkeypatch.setattr("echelon_jax.runs.clock.time.perf_counter", lambda: next(times))
    clock = CallClock()
    assert [clock.lap()[0], clock.lap()[0]] == [3.0, 5.0]


def a_run(directory: Path, name: str, rates: list[float]) -> Path:
    run = directory / name
    (run / "checkpoints" / "00000002").mkdir(parents=True)
    (run / "config.json").write_text(json.dumps(describe(TrainConfig.smoke(), EnvConfig())))
    lines = [{"update": u, "win_rate": rate, "episodes": 100.0} for u, rate in enumerate(rates, 1)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def test_runs_are_listed_with_their_best_figures(tmp_path: Path) -> None:
    run = a_run(tmp_path, "first", [0.25, 0.75, 0.5])
    (run / "evaluation.json").write_text(json.dumps({"scripted": {"win_rate": 0.4}}))
    a_run(tmp_path, "many/seed1", [])
    (tmp_path / "no run").mkdir()
    first, second = list_runs(tmp_path)
    assert (first.path.name, second.path.name) == ("first", "seed1")
    assert (first.updates, first.planned, first.win_rate, first.checkpoints) == (3, 4, 0.75, 1)
    assert first.evaluation == {"scripted": 0.4}
    assert (second.updates, second.win_rate, second.evaluation) == (0, None, None)
    assert first.git == git_revision()


def test_the_best_win_rate_is_over_enough_episodes() -> None:
    lucky = [{"win_rate": 1.0, "episodes": 1.0}, {"win_rate": 0.5, "episodes": 99.0}]
    assert best_win_rate(lucky) == pytest.approx(0.505)
    assert best_win_rate(lucky[:1]) == 1.0  # all there is
    assert best_win_rate([]) is None


def test_a_run_leaves_a_summary(tmp_path: Path) -> None:
    run = a_run(tmp_path, "first", [0.25, 0.75])
    write_summary(run, 12.34, stopped=True)
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["updates"], summary["best_win_rate"], summary["stopped_early"]) == (2, 0.75, True)


def test_the_measured_rollout_has_no_gradient_steps_in_it() -> None:
    """Nothing that the rollout leaves needs them: of the update's loops only the rollout's own is left by dead-code elimination."""
    config = TrainConfig(network="original", arenas=2, rollout_steps=4, epochs=1, minibatches=1, hidden=8, lstm=8)
    trainer, params = make_train(FakeEnv(), config, CountingAgent()), fake_params()
    state = jax.eval_shape(trainer.init, jax.random.key(0), params)
    traced = jax.make_jaxpr(rollout_alone(trainer.update))(state, params).jaxpr
    [inner] = [equation.params["jaxpr"].jaxpr for equation in traced.eqns]
    needed, _ = dce_jaxpr(inner, [True] * len(inner.outvars))
    loops = [[e for e in jaxpr.eqns if e.primitive.name == "scan"] for jaxpr in (needed, inner)]
    assert len(loops[0]) == 1 < len(loops[1])
