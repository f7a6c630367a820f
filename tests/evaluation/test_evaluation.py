"""Evaluation games: what is counted agrees with the game's own counters, is drawn, and is the same every time."""

import dataclasses
import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from echelon_jax.agents.random import RandomAgent
from echelon_jax.agents.scripted import Scripted
from echelon_jax.cli.main import main
from echelon_jax.config import EnvConfig
from echelon_jax.env.environment import Echelon
from echelon_jax.env.interfaces import action_layout
from echelon_jax.env.state import STATISTICS
from echelon_jax.evaluation import matches
from echelon_jax.evaluation.behaviour import EVENTS, count_behaviour, look_around, no_behaviour
from echelon_jax.evaluation.behaviour_numbers import summarize_behaviour
from echelon_jax.evaluation.games import Games, make_match
from echelon_jax.evaluation.matches import Evaluation, evaluate, opponent_player, policy_player
from echelon_jax.evaluation.recording import Expected, Recorder
from echelon_jax.evaluation.validation import Validator, labels
from echelon_jax.intervals import paired_score
from echelon_jax.policies.normalize import empty_moments
from echelon_jax.policies.registry import make_network
from echelon_jax.rules.weapons import AUTOCANNON, FLAMER, GAUSS, LASER, MISSILE, PAINTER, SMOKE
from echelon_jax.runs.policy import Policy
from echelon_jax.training.config import TrainConfig
from echelon_jax.viewing import extras
from echelon_jax.viewing.pictures import evaluation_figure, write_figure
from echelon_jax.viewing.topdown import BANNER, TEAM_COLOURS, draw_frame, write_gif
from echelon_jax.worldgen.bank import generate_worlds

ENV = EnvConfig(size_x=28, size_y=28)
MECH_CLASSES = ("scout", "light", "medium", "heavy")
BEHAVIOUR = Path(__file__).parents[2] / "benchmarks" / "behaviour.py"
# One program instead of hundreds of small ones.
look = jax.jit(look_around, static_argnums=0)
count = jax.jit(count_behaviour, static_argnums=0)


def untrained(seed: int = 0, env_config: EnvConfig = ENV) -> Policy:
    config = TrainConfig.smoke()
    network = make_network(config, env_config)
    moments = jax.tree.map(jnp.asarray, empty_moments(network.features.own_size))
    return Policy(network, network.init(jax.random.key(seed)), moments, config, env_config, update=0, extra={})


@pytest.fixture(scope="module")
def played() -> tuple[Evaluation, Recorder]:
    """Four games of an untrained policy against the scripted opponent, game 1 watched."""
    record = Recorder(game=1, values=True)
    return evaluate(untrained(), "scripted", games=4, record=record), record


@pytest.fixture(scope="module")
def games(played: tuple[Evaluation, Recorder]) -> Games:
    return played[0].games["scripted"]


def event(games: Games, name: str) -> np.ndarray:
    """[games, 2, team] sums of one event."""
    return games.behaviour.events[..., EVENTS.index(name)]


def test_a_validation_depends_on_policy_seed_and_update_alone(games: Games) -> None:
    policy, seen = untrained(), []
    numbers = jax.device_get((policy.params, policy.observation_moments))
    validator = Validator(policy.config, ENV, on_game=lambda *game: seen.append(game))
    second, fourth = validator(*numbers, 2), validator(*numbers, 4)
    assert Validator(policy.config, ENV)(*numbers, 2) == second != fourth
    assert set(second.metrics) == set(validator.metric_names)
    assert second.score == second.metrics["validation/score"]
    assert [game[:2] for game in seen] == [(2, "scripted"), (4, "scripted")]


def test_opponents_of_a_validation_have_short_names_that_differ() -> None:
    assert labels(["scripted", "runs/a/best", "runs/b"]) == ["scripted", "best", "b"]
    assert labels(["runs/a/best", "runs/b/best"]) == ["best-1", "best-2"]
    with pytest.raises(ValueError, match="must be different from each other"):
        labels(["random", "random"])


@pytest.mark.parametrize("name", ["kills", "assists", "damage", "knockdowns", "legged", "shutdowns"])
def test_events_of_mechs_add_up_to_the_counters_of_the_game(games: Games, name: str) -> None:
    counted = games.statistics[:, STATISTICS.index(name)]
    np.testing.assert_allclose(event(games, name).sum(-1), counted, rtol=1e-5)


@pytest.mark.parametrize(
    ("counter", "weapons"),
    [
        ("laser_hits", (LASER, FLAMER)),
        ("missile_launches", (MISSILE,)),
        ("kinetic_fires", (GAUSS, AUTOCANNON)),
        ("paints", (PAINTER,)),
    ],
)
def test_shots_by_weapon_add_up_to_the_counters_of_the_game(
    games: Games, counter: str, weapons: tuple[int, ...]
) -> None:
    fired = games.behaviour.fired[..., list(weapons)].sum((-1, -2))
    np.testing.assert_array_equal(fired, games.statistics[:, STATISTICS.index(counter)])
    assert fired.sum() > 0 or counter == "laser_hits"


def test_rewards_and_their_components_add_up_to_the_return(games: Games) -> None:
    reward = event(games, "reward")
    np.testing.assert_allclose(reward.mean(-1), games.returns, rtol=1e-5)
    np.testing.assert_allclose(games.behaviour.components.sum(-1), reward, rtol=1e-4, atol=1e-4)


def test_a_side_scores_exactly_if_it_has_stood_in_the_zone(games: Games) -> None:
    np.testing.assert_array_equal(games.zone_seconds > 0, games.behaviour.first_zone >= 0)
    assert (games.zone_seconds > 0).any()
    assert (event(games, "in_zone").sum(-1) * ENV.decision_seconds >= games.zone_seconds - 1e-3).all()


def test_every_decision_of_a_living_mech_has_one_place(games: Games) -> None:
    survived = (event(games, "decisions") - event(games, "deaths")).sum(-1)
    np.testing.assert_allclose(games.behaviour.positions.sum((-1, -2)), survived)
    assert (event(games, "decisions") <= games.length[:, None, None]).all()


def test_shots_lie_in_one_range_each(games: Games) -> None:
    every = games.behaviour.fired.sum(2)
    in_bins = games.behaviour.by_range.sum(-1)
    assert (in_bins <= every).all()  # a shot after the last enemy is in no range
    np.testing.assert_allclose(in_bins.sum(), every.sum(), rtol=0.05)


def test_taken_chances_are_chances_and_pulls(games: Games) -> None:
    b = games.behaviour
    assert (b.taken <= b.chances).all()
    assert (b.taken <= b.pulls).all()
    assert 0 < b.taken.sum() < b.pulls.sum()


def test_lasers_fire_in_reach_and_guns_also_out_of_it(games: Games) -> None:
    b = games.behaviour
    assert (b.fired_in_reach <= b.fired).all()
    share = {w: b.fired_in_reach[..., w].sum() / b.fired[..., w].sum() for w in (LASER, GAUSS, AUTOCANNON)}
    # A target may cross the arc within one decision and be in it at neither end.
    assert share[LASER] > 0.9
    assert 0 < share[GAUSS] < 0.9
    assert 0 < share[AUTOCANNON] < 0.9


def test_the_summary_is_made_of_plain_numbers_in_range(games: Games) -> None:
    def check(value: object) -> None:
        if isinstance(value, dict):
            for inner in value.values():
                check(inner)
        elif isinstance(value, list):
            for inner in value:
                check(inner)
        else:
            assert value is None or (type(value) is float and np.isfinite(value)), value

    summary = summarize_behaviour(ENV, games.behaviour, games.length)
    check(summary)
    for whose in ("own", "other"):
        for share in ("over_cap", "vents_when_hot", "vents_when_cool", "vented_before_shutdown"):
            assert summary[whose]["heat"][share] is None or 0 <= summary[whose]["heat"][share] <= 1
        assert set(summary[whose]["per_class"]) == set(MECH_CLASSES)


def test_the_table_of_how_policies_play_has_a_number_in_every_row(played: tuple[Evaluation, Recorder]) -> None:
    spec = importlib.util.spec_from_file_location("behaviour", BEHAVIOUR)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    result = played[0].against["scripted"]
    rows = module.table([result], [result, result], "scripted").splitlines()[2:]
    assert len(rows) == len(module.ROWS)
    won = next(row for row in rows if "games won" in row)
    assert won.split("|")[4].strip().startswith(f"{100 * result['losses'] / 4:.3g} (")
    scripted_in_reach = next(row for row in rows if "gun shots" in row).split("|")[4]
    assert float(scripted_in_reach.split()[0]) > 80  # it fires at what it sees
    by_class = module.class_table([result, result], "scripted").splitlines()[2:]
    assert [row.split("|")[1].strip() for row in by_class] == [c for c in MECH_CLASSES for _ in range(2)]
    taken = result["behaviour"]["other"]["per_class"]["heavy"]["damage_per_game"]
    assert f" {taken:.3g} " in by_class[-1]
    gauss = next(r for r in module.range_table([result], "scripted").splitlines() if r.startswith("| gauss | scripted"))
    shots = result["behaviour"]["other"]["weapons"]["gauss"]["shots_per_game"]
    assert sum(float(cell) for cell in gauss.split("|")[3:-1]) == pytest.approx(shots, abs=0.3)


def test_the_same_seed_gives_the_same_games(played: tuple[Evaluation, Recorder]) -> None:
    again = evaluate(untrained(), "scripted", games=4)
    assert again.against == played[0].against


def test_the_watched_game_is_recorded_from_its_first_decision_to_its_last(
    played: tuple[Evaluation, Recorder], games: Games
) -> None:
    frames = played[1].frames
    assert [int(frame.step) for frame in frames] == list(range(1, games.length[1] + 1))
    assert not any(frame.over for frame in frames)
    np.testing.assert_allclose(frames[-1].score[::-1], games.zone_seconds[1], rtol=1e-5)  # A is red in game 1
    fired = sum(frame.fired.reshape(2, 5, -1)[::-1] for frame in frames)
    np.testing.assert_array_equal(fired, games.behaviour.fired[1])


def test_what_the_critic_said_is_paired_with_what_came() -> None:
    record, gamma = Recorder(values=True), 0.5
    record.begin_round()
    reward = jnp.array([[[1.0, 2.0]], [[4.0, 8.0]]])  # two decisions of one arena with two mechs
    alive = jnp.array([[[True, True]], [[True, False]]])
    for t in range(2):
        part = Expected(value=10 * reward[t : t + 1], reward=reward[t : t + 1], alive=alive[t : t + 1])
        record.take(None, None, part, False)  # type: ignore[arg-type]
    said, came = record.returns(gamma)
    np.testing.assert_allclose(said, [10.0, 20.0, 40.0])
    np.testing.assert_allclose(came, [1 + 0.5 * 4, 2 + 0.5 * 8, 4.0])


def test_values_are_recorded_for_every_decision_of_a_living_mech(
    played: tuple[Evaluation, Recorder], games: Games
) -> None:
    said, came = played[1].returns(0.99)
    assert len(said) == len(came) == event(games, "decisions")[:, 0].sum()
    assert said.std() > 0


# -- Single rules -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def start() -> tuple:
    """One arena at its start, blue's mech 1 (a medium) and red's mech 5 (a heavy) alone in it."""
    env = Echelon(ENV)
    env_params = env.params(env.make_bank(generate_worlds(ENV, range(1))))
    state, step = env.reset_batch(jax.random.split(jax.random.key(0), 1), env_params, jnp.zeros(1, jnp.int32))
    alive = jnp.zeros((1, 10), bool).at[0, jnp.array([1, 5])].set(True)
    mechs = state.sim.mechs.replace(alive=alive, yaw=jnp.zeros((1, 10)))
    return env_params, state.replace(sim=state.sim.replace(mechs=mechs)), step


@pytest.mark.parametrize(
    ("offset", "laser", "autocannon"),
    [
        ((7.0, 0.0), True, True),
        ((9.0, 0.0), False, True),  # beyond the laser's 8 voxels
        ((13.0, 0.0), False, False),
        ((-7.0, 0.0), False, False),  # behind
        ((3.0, 4.0), True, False),  # 53 degrees off: inside the laser's 60, outside the autocannon's 45
    ],
)
def test_reach_is_range_and_arc(start: tuple, offset: tuple[float, float], laser: bool, autocannon: bool) -> None:
    env_params, state, _ = start
    mechs = state.sim.mechs
    place = mechs.position.at[0, 5].set(mechs.position[0, 1] + jnp.array([*offset, 0.0]))
    sight = look(ENV, env_params.rules, mechs.replace(position=place))
    assert bool(sight.reach[0, 1, LASER]) == laser
    assert bool(sight.reach[0, 1, AUTOCANNON]) == autocannon
    assert int(sight.target[0, 1, LASER]) == 5
    assert float(sight.distance[0, 1, LASER]) == pytest.approx(np.hypot(*offset))


@pytest.mark.parametrize("vents", [True, False])
def test_venting_counts_as_foresight_before_a_shutdown(start: tuple, vents: bool) -> None:
    env_params, state, step = start
    cap = env_params.rules.heat_cap

    def at(share: float) -> object:
        mechs = state.sim.mechs.replace(heat=jnp.broadcast_to(share * cap, (1, 10)))
        return state.replace(sim=state.sim.replace(mechs=mechs))

    actions = jnp.zeros((1, 10, action_layout(ENV).size)).at[..., 5].set(1.0 if vents else -1.0)
    sums, _, _ = count(ENV, env_params, no_behaviour(ENV, state), at(0.8), actions, at(1.1), step)
    counted = dict(zip(EVENTS, sums.events[0, 1].tolist(), strict=True))
    assert (counted["hot"], counted["shutdowns"]) == (1.0, 1.0)
    assert (counted["vents_hot"], counted["vented_before"]) == (float(vents), float(vents))
    dead = dict(zip(EVENTS, sums.events[0, 0].tolist(), strict=True))
    assert dead["decisions"] == dead["hot"] == dead["shutdowns"] == 0


def test_a_finished_game_adds_nothing(start: tuple) -> None:
    env_params, state, step = start
    over = state.replace(episode_over=jnp.ones(1, bool))
    none = no_behaviour(ENV, state)
    step = step.replace(info=step.info.replace(alive=jnp.ones((1, 10), bool)))
    sums, _, _ = count(ENV, env_params, none, over, jnp.ones((1, 10, action_layout(ENV).size)), over, step)
    for name in ("events", "fired", "pulls", "chances", "positions", "first_zone"):
        np.testing.assert_array_equal(getattr(sums, name), getattr(none, name), err_msg=name)


def test_smoke_is_carried_by_all_and_the_flamer_by_lights_alone(games: Games) -> None:
    pulls = games.behaviour.pulls.sum((0, 1))
    assert (pulls[:, SMOKE] > 0).all()
    assert pulls[:, FLAMER].nonzero()[0].tolist() == [3]


# -- Opponents --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rate"), [("scripted", 1.0), ("scripted:0.25", 0.25)])
def test_an_opponent_may_tell_its_fire_rate(name: str, rate: float) -> None:
    _, numbers = opponent_player(name, ENV)
    assert float(numbers.fire_probability) == rate


def test_one_program_plays_every_built_in_opponent_as_it_plays_alone(start: tuple) -> None:
    env_params, state, _ = start
    keys = jax.random.split(jax.random.key(5), 1)
    players = {name: opponent_player(name, ENV) for name in ("scripted", "random")}
    assert players["scripted"][0] == players["random"][0]
    act = jax.jit(players["random"][0].agent.act)
    acted = {}
    for name, alone in (("scripted", Scripted(ENV)), ("random", RandomAgent(ENV))):
        agent, numbers = players[name][0].agent, players[name][1]
        acted[name] = act(env_params, numbers, agent.init(env_params, state), state, keys)[1]
        _, expected = jax.jit(alone.act)(env_params, numbers, alone.init(env_params, state), state, keys)
        np.testing.assert_allclose(acted[name], expected, atol=1e-6)
    assert (acted["scripted"] != acted["random"]).any()


@pytest.mark.parametrize("name", ["champion", "scripted:2", "scripted:often", "random:0.5"])
def test_an_opponent_that_there_is_not_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match="opponents must"):
        opponent_player(name, ENV)


def test_a_policy_trained_for_another_game_is_refused_by_field() -> None:
    with pytest.raises(ValueError, match="size_x"):
        opponent_player(untrained(1, EnvConfig(size_x=32, size_y=28)), ENV)


def test_fire_rates_share_a_compiled_match() -> None:
    env, a = Echelon(ENV), policy_player(untrained())[0]
    rates = [opponent_player(name, ENV)[0] for name in ("scripted", "scripted:0.1")]
    assert make_match(env, a, rates[0]) is make_match(env, a, rates[1])


@pytest.mark.parametrize("numbers", [{"games": 3}, {"games": 0}, {"games": 4, "arenas": 5}])
def test_odd_numbers_of_games_are_refused(numbers: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="even number"):
        evaluate(untrained(), **numbers)


def test_the_maps_are_the_units_of_the_paired_interval() -> None:
    certain = np.array([1, -1] * 50)  # every map is won from one side and lost from the other
    assert paired_score(certain) == (0.5, 0.5, 0.5)
    split = np.array([1, 1, -1, -1] * 25)  # every map goes to one player, half of them to each
    mean, low, high = paired_score(split)
    assert mean == 0.5
    assert high - low == pytest.approx(2 * 1.96 * np.std([1, 0] * 25, ddof=1) / np.sqrt(50))
    assert paired_score(np.array([1, 1])) == (1.0, 0.0, 1.0)


# -- Pictures ---------------------------------------------------------------------------------------------------------


def test_a_mech_is_drawn_in_its_sides_colour_where_it_stands(played: tuple[Evaluation, Recorder]) -> None:
    frame, scale = played[1].frames[0], 12
    image = draw_frame(ENV, frame, scale)
    assert image.size == (28 * scale, 28 * scale + BANNER)
    for heavy, colour in ((0, TEAM_COLOURS[0]), (5, TEAM_COLOURS[1])):
        ahead = np.array([np.cos(frame.yaw[heavy]), np.sin(frame.yaw[heavy])])
        x, y = frame.position[heavy, :2] - 1.3 * ahead  # behind the centre, clear of letter and heading
        assert image.getpixel((int(x * scale), int(BANNER + (28 - y) * scale))) == colour


def test_a_game_becomes_an_animated_gif(played: tuple[Evaluation, Recorder], tmp_path: Path) -> None:
    from PIL import Image

    frames = played[1].frames[:6]
    path = write_gif(tmp_path / "game.gif", ENV, frames, scale=6)
    with Image.open(path) as gif:
        assert gif.format == "GIF"
        assert gif.n_frames == 6
    with pytest.raises(ValueError, match="frames"):
        write_gif(path, ENV, [])


def test_an_evaluation_becomes_a_picture(played: tuple[Evaluation, Recorder], tmp_path: Path) -> None:
    path = write_figure(tmp_path / "evaluation.png", evaluation_figure(played[0]))
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="scripted"):
        evaluation_figure(played[0], "nobody")


def test_the_axis_of_win_rates_ends_where_win_rates_do(played: tuple[Evaluation, Recorder]) -> None:
    figure = evaluation_figure(dataclasses.replace(played[0], policy="runs/$a_{b$"))
    figure.draw_without_rendering()
    axis = figure.axes[0]
    assert axis.get_xlim() == (0, 1)
    for text in axis.texts:  # and what is written beside a bar stays inside
        box = text.get_window_extent().transformed(axis.transData.inverted())
        assert box.x0 >= 0 and box.x1 <= 1


def test_a_missing_drawing_package_is_one_sentence_before_any_game(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(extras, "import_module", absent)
    monkeypatch.setattr(matches, "load_policy", lambda path: pytest.fail("played before it noticed"))
    assert main(["evaluate", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "pip install matplotlib" in capsys.readouterr().err
