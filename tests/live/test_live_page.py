"""The live page in a real browser: what the server sends is what it shows, under its own policy."""

import pytest
from helpers.browser import WAIT, complains

from echelon_jax.live.feed import Feed
from echelon_jax.live.server import LiveServer
from echelon_jax.replay.page import page_of_bytes

ABOUT = {"name": "<b>run</b>", "what": "a run of a test", "updates": 60, "validates": True}


def line(update, **numbers):
    return {"update": update, "env_steps": 8192 * update, "env_steps_per_second": 1234.0, **numbers}


@pytest.fixture
def feed():
    made = Feed(ABOUT)
    made.extend(line(update, win_rate=0.01 * update, return_per_mech=-1.0) for update in range(1, 31))
    return made


def test_the_page_shows_curves_and_the_newest_game_as_they_come(browser, feed, data):
    # Nothing here waits by a function of the page: its policy forbids the eval that this needs.
    with LiveServer(feed) as server:
        page, complaints = browser.new_page(viewport={"width": 1300, "height": 860}), []
        page.set_default_timeout(WAIT)
        page.on("console", lambda m: complains(m) and complaints.append(m.text))
        page.on("pageerror", lambda e: complaints.append(str(e)))
        page.goto(server.url)
        page.get_by_text("update 30 of 60").wait_for()
        assert page.locator("#name").inner_text() == ABOUT["name"], "a name is text, never markup"
        assert page.locator("#progress").evaluate("bar => bar.value / bar.max") == 0.5
        figure = page.locator("figure").first
        assert "30%" in figure.inner_text() and "validation" not in figure.inner_text()
        points = figure.locator("polyline").get_attribute("points").split()
        assert len(points) == 30 and points[0] != points[-1]
        assert page.locator("#frame").is_hidden()

        feed.write(line(31, win_rate=0.5, **{"validation/win_rate": 0.25}))
        feed.show_game(31, page_of_bytes((data / "replays" / "small.echelon").read_bytes()).encode())
        page.get_by_text("Validation game of update 31").wait_for()
        page.get_by_text("update 31 of 60").wait_for()
        assert "validation 25%" in figure.inner_text().replace("\n", " ")
        inside = page.frame_locator("#frame")
        inside.locator("#clock").wait_for()
        inside.locator("#message").wait_for(state="hidden")

        feed.end()
        page.get_by_text("the run is over").wait_for()
        assert complaints == []
        page.close()
