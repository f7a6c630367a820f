"""The page in a real browser: headless Chromium with software rendering, the page opened from disk without a network."""

import base64
import json
import re

import numpy as np
import pytest
from helpers.browser import WAIT, complains

from echelon_jax.config import EnvConfig
from echelon_jax.replay.file import from_bytes
from echelon_jax.replay.model import ALIVE, EVENT, Replay
from echelon_jax.replay.original import from_original_json
from echelon_jax.replay.page import write_page
from echelon_jax.rules.materials import AIR
from echelon_jax.rules.mechs import CLASS_NAMES, roster
from echelon_jax.worldgen.generate import generate_world

EVIL = "<img src=x onerror=globalThis.hurt=1></script><script>globalThis.hurt=1</script>"


CHOICES = ["fire", "move/ahead", "move/back"]


def thoughts(replay):
    """Values of a critic and probabilities of choices, which the stored game's scripted players do not have."""
    rng = np.random.default_rng(0)
    value = rng.normal(size=(replay.decisions, 10)).astype(np.float32)
    return {"value": value, "probability": rng.dirichlet([1.0, 1.0, 1.0], value.shape).astype(np.float16)}


@pytest.fixture(scope="module")
def replay(data):
    return from_bytes((data / "replays" / "small.echelon").read_bytes())


@pytest.fixture(scope="module")
def page(browser, replay, tmp_path_factory):
    """The page of the stored game with a hostile name, paused at its start; complaints are collected."""
    game = Replay(
        {**replay.header, "names": ["scripted", EVIL], "choices": CHOICES}, {**replay.arrays, **thoughts(replay)}
    )
    path = write_page(tmp_path_factory.mktemp("page") / "game.html", game)
    page = browser.new_page(viewport={"width": 900, "height": 560})
    page.set_default_timeout(WAIT)
    page.complaints = []
    page.requests = []
    page.on("console", lambda m: complains(m) and page.complaints.append(m.text))
    page.on("pageerror", lambda e: page.complaints.append(str(e)))
    page.on("request", lambda r: page.requests.append(r.url))
    page.goto(f"{path.as_uri()}#paused")
    page.wait_for_function("() => globalThis.echelon && document.getElementById('message').hidden")
    yield page
    page.close()


@pytest.fixture(autouse=True)
def rested(page):
    page.evaluate(
        "echelon.setPlaying(false); echelon.setSpeed(1); echelon.choose(-1); echelon.camera.reset(); echelon.seek(0)"
    )
    redraw(page)


def redraw(page):
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def seek(page, frame):
    page.evaluate(f"echelon.seek({frame} * echelon.game.substeps)")
    redraw(page)


def number(text):
    return float(re.search(r"-?\d+(\.\d+)?", text).group())


def picture(page):
    """The canvas as an array [height, width, 4], read right after drawing it."""
    width, height, pixels = page.evaluate(
        """() => {
          const gl = echelon.renderer.getContext();
          echelon.renderer.render(echelon.scene, echelon.camera.camera);
          const [w, h] = [gl.drawingBufferWidth, gl.drawingBufferHeight];
          const pixels = new Uint8Array(4 * w * h);
          gl.readPixels(0, 0, w, h, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
          let text = "";
          for (let i = 0; i < pixels.length; i += 4096) text += String.fromCharCode(...pixels.subarray(i, i + 4096));
          return [w, h, btoa(text)];
        }"""
    )
    return np.frombuffer(base64.b64decode(pixels), np.uint8).reshape(height, width, 4)


def test_the_console_stays_silent_and_nothing_is_fetched(page):
    for frame in (0, 10, 30):
        seek(page, frame)
    page.keyboard.press("n")
    redraw(page)
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_a_replay_shows_itself_in_a_notebook(browser, replay, tmp_path):
    """As the last line of a cell: the page in a frame that cannot reach the notebook around it."""
    notebook = tmp_path / "cell.html"
    notebook.write_text(f"<!doctype html><p>a cell</p>{replay._repr_html_()}", encoding="utf-8")
    page, complaints = browser.new_page(viewport={"width": 1000, "height": 700}), []
    page.set_default_timeout(WAIT)
    page.on("console", lambda m: complains(m) and complaints.append(m.text))
    page.on("pageerror", lambda e: complaints.append(str(e)))
    page.goto(notebook.as_uri())
    inside = page.frame_locator("iframe")
    inside.locator("#message").wait_for(state="hidden")
    assert inside.locator("#side-0 .name").inner_text() == "scripted"
    shown = inside.locator("#view").bounding_box()
    assert shown["width"] > 500 and shown["height"] > 300
    assert page.locator("iframe").get_attribute("sandbox") == "allow-scripts"
    assert complaints == []
    page.close()


def test_script_in_a_name_is_shown_as_text(page):
    assert page.evaluate("globalThis.hurt") is None
    assert page.locator("#side-1 .name").inner_text() == EVIL


def test_the_canvas_shows_a_picture_that_changes_with_time(page):
    first = picture(page)
    assert len(np.unique(first.reshape(-1, 4), axis=0)) > 200
    seek(page, 40)
    assert (picture(page) != first).any(-1).mean() > 0.001


def test_scores_and_clock_are_the_files(page, replay):
    for frame in (0, 17, replay.decisions):
        seek(page, frame)
        for team in (0, 1):
            shown = number(page.locator(f"#side-{team} .score").inner_text())
            assert shown == pytest.approx(float(replay["score"][frame, team]), abs=0.051)
            alive = int(((replay["flags"][frame, 5 * team : 5 * team + 5] & ALIVE) > 0).sum())
            assert page.locator(f"#side-{team} .alive").inner_text().count("●") == alive
        assert page.locator("#decision").inner_text() == f"decision {frame} of {replay.decisions}"
        seconds = frame * replay.header["decision_seconds"]
        minutes, rest = page.locator("#clock").inner_text().split(":")
        assert 60 * int(minutes) + float(rest) == pytest.approx(seconds, abs=0.051)


def test_the_panel_shows_the_files_numbers(page, replay):
    frame = 20
    seek(page, frame)
    for mech in (0, 3, 6):
        page.evaluate(f"echelon.choose({mech})")
        redraw(page)
        shown = page.locator("#mech-hp b").inner_text()
        assert number(shown) == pytest.approx(max(0.0, float(replay["hp"][frame, mech])), abs=0.051)
        heat = number(page.locator("#mech-heat b").inner_text())
        assert heat == pytest.approx(float(replay["heat"][frame, mech]), abs=0.051)
        forward = number(page.locator("#panel .signed b").first.inner_text())
        assert forward == pytest.approx(float(replay["actions"][frame, mech, 0]), abs=0.0051)


def test_the_panel_shows_what_critic_and_heads_thought_the_likeliest_first(page, replay):
    frame, mech, made = 20, 2, thoughts(replay)
    seek(page, frame)
    page.evaluate(f"echelon.choose({mech})")
    redraw(page)
    assert number(page.locator("#mech-value").inner_text()) == pytest.approx(made["value"][frame, mech], abs=0.0006)
    chances = made["probability"][frame, mech].astype(float)
    rows = [text.split("\n") for text in page.locator("#panel .chances .meter").all_inner_texts()]
    wanted = [i for i in np.argsort(-chances) if chances[i] >= 0.01]
    assert [row[0] for row in rows] == [CHOICES[i].replace("/", " ") for i in wanted]
    assert [number(row[-1]) for row in rows] == pytest.approx([100 * chances[i] for i in wanted], abs=0.51)


def test_the_reward_legend_adds_up_the_files_rewards(page, replay):
    seek(page, 30)
    page.evaluate("echelon.choose(1)")
    redraw(page)
    shown = [number(text.split()[-1]) for text in page.locator("#panel .legend span").all_inner_texts()]
    assert shown == pytest.approx(replay["rewards"][:30, 1].sum(0).tolist(), abs=0.006)


def test_what_a_mech_sees_is_read_as_the_file_holds_it(page, replay):
    seen = page.evaluate("Array.from(echelon.game.observation(12, 4))")
    assert np.array_equal(np.array(seen, np.float32), replay["observation"][12, 4].astype(np.float32))


def test_poses_are_those_of_the_file(page, replay):
    for frame in (0, 9, replay.decisions):
        seek(page, frame)
        poses = page.evaluate("echelon.mechs.poses.map((p) => [p.x, p.y, p.z])")
        assert np.abs(np.array(poses) - replay["position"][frame]).max() < 0.02


def test_the_map_follows_its_edits_both_ways(page, replay):
    assert len(replay["edit_time"])
    for frame in (replay.decisions, 0, 25):
        seek(page, frame)
        cells = replay["material"].reshape(-1).copy()
        done = replay["edit_time"] <= frame * replay.header["substeps"]
        cells[replay["edit_voxel"][done]] = replay["edit_material"][done]
        assert page.evaluate("Array.from(echelon.terrain.cells)") == cells.tolist()


def test_the_kill_feed_and_the_timeline_know_every_kill(page, replay):
    kills = int((replay["event_kind"] == EVENT["kill"]).sum())
    assert page.evaluate("echelon.game.byKind[9].time.length") == kills
    seek(page, replay.decisions)
    assert page.locator("#feed .kill").count() <= kills


def test_a_click_on_the_timeline_goes_there(page, replay):
    page.locator("#timeline").click(position={"x": page.locator("#timeline").bounding_box()["width"] / 2, "y": 10})
    redraw(page)
    assert abs(page.evaluate("echelon.game.frame(echelon.t)") - replay.decisions / 2) <= 1
    assert page.locator("#timeline").get_attribute("aria-valuenow") == str(
        page.evaluate("echelon.game.frame(echelon.t)")
    )


def test_arrows_step_one_decision_and_home_and_end_go_to_the_ends(page, replay):
    for key, frame in (
        ("ArrowRight", 1),
        ("ArrowRight", 2),
        ("ArrowLeft", 1),
        ("Shift+ArrowRight", 21),
        ("End", replay.decisions),
        ("ArrowRight", replay.decisions),
        ("Home", 0),
        ("ArrowLeft", 0),
    ):
        page.keyboard.press(key)
        assert page.evaluate("echelon.game.frame(echelon.t)") == frame, key


def test_j_and_k_go_to_the_moments_before_kills(page, replay):
    kills = replay["event_time"][replay["event_kind"] == EVENT["kill"]]
    assert len(kills)
    page.keyboard.press("k")
    assert page.evaluate("echelon.t") == max(0, kills[kills > 12][0] - 10)
    page.keyboard.press("End")
    page.keyboard.press("j")
    assert page.evaluate("echelon.t") == max(0, kills[-1] - 10)


def test_t_looks_from_above_and_c_goes_back(page):
    def place():
        redraw(page)
        return page.evaluate("[echelon.camera.camera.position.toArray(), echelon.camera.controls.target.toArray()]")

    start = place()
    page.keyboard.press("t")
    camera, target = place()
    assert camera[2] > target[2] + 10
    assert camera[:2] == pytest.approx(target[:2], abs=0.5)
    page.keyboard.press("c")
    assert np.allclose(place(), start, atol=1e-3)


@pytest.fixture
def tall(page):
    """A window with room for the map, which a low one does not show."""
    page.set_viewport_size({"width": 900, "height": 700})
    redraw(page)
    yield page
    page.set_viewport_size({"width": 900, "height": 560})


def test_the_map_shows_the_living_in_their_colours_and_a_click_on_it_looks_there(tall):
    seek(tall, 0)
    count = """() => { const c = document.getElementById("minimap");
      const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
      const found = [0, 0];
      for (let i = 0; i < data.length; i += 4) {
        const [r, g, b] = data.slice(i, i + 3);
        if (b > 200 && b > r + 100) found[0] += 1;
        if (r > 200 && r > b + 100) found[1] += 1;
      }
      return found; }"""
    assert min(tall.evaluate(count)) > 20, "both teams"
    box = tall.locator("#minimap").bounding_box()
    for share in (0.25, 0.75):
        tall.mouse.click(box["x"] + share * box["width"], box["y"] + 0.25 * box["height"])
        redraw(tall)
        x, y = tall.evaluate("[echelon.camera.controls.target.x, echelon.camera.controls.target.y]")
        assert (x, y) == pytest.approx((share * 32, 0.75 * 32), abs=1.0)


def test_m_hides_the_map_and_a_question_mark_shows_the_keys(tall):
    page = tall
    for key, element in (("m", "#map"), ("?", "#help")):
        before = page.locator(element).is_visible()
        page.keyboard.press(key)
        assert page.locator(element).is_visible() != before
        page.keyboard.press(key)
        assert page.locator(element).is_visible() == before


def test_space_plays_and_pauses(page):
    page.keyboard.press("Space")
    page.wait_for_function("() => echelon.playing && echelon.t > 0.5")
    page.keyboard.press("Space")
    stopped = page.evaluate("echelon.t")
    redraw(page)
    assert page.evaluate("[echelon.playing, echelon.t]") == [False, stopped]


def test_speed_keys_and_buttons_change_how_far_a_second_goes(page):
    page.keyboard.press("ArrowUp")
    page.locator("#faster").click()
    assert page.locator("#speed").inner_text() == "4×"
    for _ in range(9):
        page.keyboard.press("-")
    assert page.locator("#speed").inner_text() == "0.25×"
    # A quarter of a second at speed 4 is one second of the game: 20 substeps.
    moved = page.evaluate(
        """() => { echelon.setSpeed(4); echelon.setPlaying(true); const from = echelon.t; echelon.advance(0.25);
          echelon.setPlaying(false); return echelon.t - from; }"""
    )
    assert moved == pytest.approx(20.0)


def test_digits_and_tab_choose_mechs_and_escape_none(page):
    page.keyboard.press("3")
    assert page.evaluate("echelon.chosen") == 2
    assert page.locator("#panel").is_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("echelon.chosen") == 3
    page.keyboard.press("Escape")
    assert page.evaluate("echelon.chosen") == -1
    assert page.locator("#panel").is_hidden()


def test_following_keeps_the_mech_in_the_middle(page):
    page.evaluate("echelon.choose(6)")
    page.keyboard.press("f")
    redraw(page)
    for frame in (5, 25):
        seek(page, frame)
        target, pose = page.evaluate(
            "(({x, y, z}) => [echelon.camera.controls.target.toArray(), [x, y, z]])(echelon.mechs.poses[6])"
        )
        assert target == pytest.approx(pose, abs=1e-3)
    assert page.locator("#camera").inner_text().startswith("following Orange")
    page.keyboard.press("f")
    assert page.locator("#camera").inner_text() == "free camera"


def test_a_click_on_a_mech_chooses_it(page):
    spot = page.evaluate(
        """() => { const p = echelon.mechs.poses[0];
          const v = echelon.camera.controls.target.clone().set(p.x, p.y, p.z).project(echelon.camera.camera);
          const box = echelon.canvas.getBoundingClientRect();
          return [box.left + (v.x + 1) / 2 * box.width, box.top + (1 - v.y) / 2 * box.height]; }"""
    )
    page.mouse.click(*spot)
    chosen = page.evaluate("echelon.chosen")
    assert chosen in range(5), "the heavy or one of its pack beside it"


def test_draw_calls_and_triangles_are_told(page):
    page.keyboard.press("g")
    redraw(page)
    page.evaluate("echelon.shown = ''")
    redraw(page)
    text = page.locator("#debug").inner_text()
    calls, triangles = (int(n.replace(",", "")) for n in re.findall(r"([\d,]+) (?:draw calls|triangles)", text))
    assert 5 < calls < 150
    assert 500 < triangles < 200_000
    page.keyboard.press("g")
    assert page.locator("#debug").is_hidden()


def large_game():
    """Ten against ten on a generated map of 100 x 100, as the original would write it: four frames of standing mechs."""
    config = EnvConfig.original(num_packs=2)
    world = generate_world(config, 7)
    who = roster(config.num_packs)
    solid = [(int(x), int(y), int(z), int(world.material[z, y, x])) for z, y, x in np.argwhere(world.material != AIR)]
    mechs = {}
    for index, (name, kind) in enumerate(zip(who.ids, who.mech_class, strict=True)):
        mechs[name] = {
            "team": name.split("_")[0], "class": CLASS_NAMES[kind], "pos": [5.0 + 4.5 * index, 50.0, 1.5], "vel": [0.0] * 3,
            "yaw": 0.3 * index, "hp": 50.0, "hp_max": 150, "heat": 20.0, "heat_cap": 100.0, "stability": 90.0,
            "stability_max": 100.0, "alive": True, "fallen": False, "legged": False, "suppressed_time": 0.0,
            "ams_cooldown": 0.0, "ecm_on": index % 2 == 0, "eccm_on": index % 2 == 1,
        }  # fmt: skip
    objective = {
        "zone_center": [50.0, 50.0], "zone_radius": 15.0, "zone_score": {"blue": 1.0, "red": 2.0}, "zone_score_to_win": 30.0,
    }  # fmt: skip
    clouds = [{"pos": [20.0 * i, 30.0, 2.0], "radius": 4.0} for i in range(5)]
    frames = [
        {"t": 0.25 * n, "tick": 5 * n, "objective": objective, "mechs": mechs, "smoke_clouds": clouds, "events": []}
        for n in range(1, 5)
    ]
    size = [config.size_x, config.size_y, config.size_z]
    return from_original_json(
        json.dumps({"world": {"size": size, "seed": 7, "walls": solid}, "frames": frames}).encode()
    )


def test_ten_against_ten_on_a_large_map_is_drawn_with_few_calls(browser, tmp_path):
    """Mechs are instanced and walls meshed greedily, so that calls and triangles are few."""
    game = large_game()
    path = write_page(tmp_path / "large.html", game)
    page, complaints = browser.new_page(viewport={"width": 1280, "height": 800}), []
    page.set_default_timeout(WAIT)
    page.on("console", lambda m: complains(m) and complaints.append(m.text))
    page.on("pageerror", lambda e: complaints.append(str(e)))
    page.goto(f"{path.as_uri()}#paused")
    page.wait_for_function("() => globalThis.echelon && document.getElementById('message').hidden")
    page.evaluate("echelon.seek(echelon.game.end)")
    redraw(page)
    page.evaluate("echelon.shown = ''")
    redraw(page)
    calls, triangles = page.evaluate("[echelon.renderer.info.render.calls, echelon.renderer.info.render.triangles]")
    page.close()
    print(f"{calls} draw calls, {triangles} triangles, {int((game['material'] != AIR).sum())} voxels")
    assert complaints == []
    assert 10 < calls < 200
    assert 5_000 < triangles < 50_000
