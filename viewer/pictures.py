"""Pictures for the README from a replay: a moving one and stills, out of the viewer in headless Chromium (playwright, pillow).

    echelon watch --size 60 --packs 2 --seed 3 --no-open --out replays/readme.html
    python viewer/pictures.py replays/readme.html --start 12 --seconds 6

Writes docs/images/game.gif, viewer.png and follow.png.
"""

from __future__ import annotations

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-quic",
]
BRIGHT = (
    *("#3b9cff", "#ff9d2e", "#1f63b0", "#b06a18", "#8ec6ff", "#ffc98a"),
    *("#ff5c5c", "#c9a6ff", "#ff7bf0", "#ffcf5a", "#ff4b1e", "#2a9aa8"),
)
RATE = 12  # pictures per second of the GIF
IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"


def shot(page: Page) -> Image.Image:
    """The page as it stands, after it has been drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def seek(page: Page, seconds: float) -> None:
    """Go to a moment of the game."""
    page.evaluate(f"echelon.seek({seconds} / echelon.game.decisionSeconds * echelon.game.substeps)")


def moving(page: Page, given: argparse.Namespace) -> list[Image.Image]:
    """Pictures of a stretch of the game around the zone; a turning camera makes a much larger file."""
    page.evaluate("document.body.classList.add('film')")
    pictures = []
    count, width = round(given.seconds * RATE), given.width
    for i in range(count):
        seek(page, given.start + given.speed * i / RATE)
        page.evaluate(
            f"""(() => {{
              const e = echelon, far = {given.near} * Math.max(e.game.size.x, e.game.size.y);
              const a = -2.0 + {given.turn} * {i} / {count};
              e.camera.controls.target.set(e.game.zone.x, e.game.zone.y, 1);
              e.camera.camera.position.set(
                e.game.zone.x + far * Math.cos(a), e.game.zone.y + far * Math.sin(a), 0.62 * far);
              e.camera.controls.update();
            }})()"""
        )
        picture = shot(page)
        pictures.append(picture.resize((width, width * picture.height // picture.width), Image.Resampling.LANCZOS))
        print(f"\r{i + 1} of {count}", end="", flush=True)
    print()
    page.evaluate("document.body.classList.remove('film')")
    return pictures


def palette_of(picture: Image.Image, colours: int) -> Image.Image:
    """A palette that keeps small bright things bright: the picture with patches of the colours that matter beside it."""
    width, height = picture.size
    wide = Image.new("RGB", (width, height + height // 3), (255, 255, 255))
    wide.paste(picture, (0, 0))
    for i, colour in enumerate(BRIGHT):
        wide.paste(colour, (i * width // len(BRIGHT), height, (i + 1) * width // len(BRIGHT), height + height // 3))
    return wide.quantize(colours)


def save_gif(path: Path, pictures: list[Image.Image], colours: int) -> None:
    """One palette for all pictures, so that nothing flickers and equal pixels stay equal."""
    palette = palette_of(pictures[len(pictures) // 2], colours)
    first, *rest = [picture.quantize(palette=palette, dither=0) for picture in pictures]
    first.save(path, save_all=True, append_images=rest, duration=1000 // RATE, loop=0, optimize=True)
    print(path, path.stat().st_size)


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path, help="page of a replay")
    parser.add_argument("--start", type=float, default=12.0, help="seconds into the game")
    parser.add_argument("--seconds", type=float, default=6.0, help="length of the moving picture")
    parser.add_argument("--speed", type=float, default=1.0, help="times the game's clock")
    parser.add_argument("--near", type=float, default=0.5, help="distance of the camera, in map sides")
    parser.add_argument("--turn", type=float, default=0.0, help="radians that the camera turns meanwhile")
    parser.add_argument("--mech", type=int, default=0, help="mech that follow.png follows")
    parser.add_argument("--width", type=int, default=560, help="of the moving picture")
    parser.add_argument("--colours", type=int, default=96, help="of the moving picture, up to 256")
    parser.add_argument("--out", type=Path, default=IMAGES)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    chromium = next(path for name in ("chromium", "google-chrome") if (path := shutil.which(name)))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 760})
        page.goto(f"{given.page.resolve().as_uri()}#paused&full")
        page.wait_for_function("globalThis.echelon && document.getElementById('message').hidden")
        seek(page, given.start)
        still(page, given.out / "viewer.png")
        page.evaluate(f"echelon.choose({given.mech}); echelon.follow()")
        still(page, given.out / "follow.png")
        page.evaluate("echelon.choose(-1); echelon.camera.reset()")
        page.set_viewport_size({"width": 960, "height": 560})
        pictures = moving(page, given)
        save_gif(given.out / "game.gif", pictures, given.colours)
        browser.close()


def still(page: Page, path: Path) -> None:
    """Save the page as a small PNG."""
    picture = shot(page)
    picture.quantize(palette=palette_of(picture, 256), dither=0).save(path, optimize=True)
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
