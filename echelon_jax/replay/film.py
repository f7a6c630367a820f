"""A replay from above as GIF or MP4, or in TensorBoard, drawn without a display (pillow; MP4 with PyAV)."""

from __future__ import annotations

import math
import re
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from echelon_jax.replay.model import ALIVE, EVENT, FALLEN, POSE_UNIT, SHUTDOWN, TRACK_UNIT, TURN_UNIT, Replay
from echelon_jax.rules.materials import AIR
from echelon_jax.rules.weapons import FLAMER, GAUSS, MISSILE
from echelon_jax.viewing.extras import drawing

FRAMES_PER_SECOND = 20
BANNER = 0.075  # share of the width above the map, for the score
SMOOTH = 2  # the picture is drawn this many times larger
TEAMS = ((59, 156, 255), (255, 157, 46))
GROUND = (72, 80, 92)
# By material id, as in the viewer.
COLOURS = np.array(
    [
        GROUND,
        (167, 173, 180),
        (255, 75, 30),
        (42, 154, 168),
        (138, 111, 88),
        (77, 72, 69),
        (128, 118, 106),
        (169, 220, 232),
        (117, 116, 140),
        (111, 155, 94),
    ],
    np.float32,
)
BEAM_LIFE, BLAST_LIFE, TRAIL = 4, 12, 5  # substeps
WHITE, FIRE, PAINT = (255, 255, 255), (255, 170, 70), (255, 123, 240)


def terrain_picture(material: np.ndarray) -> np.ndarray:
    """uint8 [size_y, size_x, 3]: the highest voxel of each column, lit from the north-west; row 0 is the top of the map.

    Args:
        material: uint8 [size_z, size_y, size_x].
    """
    levels = np.arange(1, len(material) + 1)[:, None, None]
    height = np.where(material != AIR, levels, 0).max(0)
    top = np.take_along_axis(material, np.maximum(height - 1, 0)[None], 0)[0]
    edge = np.pad(height, 1, mode="edge")
    slope = (edge[1:-1, 1:-1] - edge[1:-1, :-2]) + (edge[1:-1, 1:-1] - edge[2:, 1:-1])
    light = 0.72 + 0.28 * np.clip(height / 10.0, 0, 1) + 0.10 * np.clip(slope, -3, 3)
    return np.clip(COLOURS[top] * light[..., None], 0, 255).astype(np.uint8)[::-1]


class Painter:
    """Draws moments of a replay.

    Args:
        replay: the game.
        width: of the picture in pixels; the height follows from the map.
    """

    def __init__(self, replay: Replay, width: int = 480) -> None:
        self.replay = replay
        self.size_y, self.size_x = replay["material"].shape[1:]
        self.scale = SMOOTH * width / self.size_x
        self.banner = SMOOTH * max(22, round(BANNER * width))
        even = 2 * SMOOTH  # film codecs want even sizes
        self.width = SMOOTH * width // even * even
        self.height = (round(self.size_y * self.scale) + self.banner) // even * even
        self.cells = replay["material"].copy()
        self.applied = 0
        self.ground: Any = None
        self.deaths = self._deaths()
        sizes = np.cumsum(replay["track_points"])
        self.first_point = sizes - replay["track_points"]
        self.longest = int(replay["track_points"].max(initial=0))

    @property
    def end(self) -> int:
        """Substeps of the game."""
        return self.replay.decisions * int(self.replay.header["substeps"])

    def _deaths(self) -> np.ndarray:
        r, substeps = self.replay, int(self.replay.header["substeps"])
        gone = (r["flags"] & ALIVE) == 0
        deaths = np.where(gone.any(0), gone.argmax(0) * substeps, np.iinfo(np.int32).max)
        for i in np.flatnonzero(r["event_kind"] == EVENT["kill"]):
            if r["event_b"][i] >= 0:
                deaths[r["event_b"][i]] = min(deaths[r["event_b"][i]], r["event_time"][i])
        return deaths

    def pose(self, t: float, mech: int) -> tuple[float, float, float]:
        """Return x, y and yaw of a mech between substeps."""
        r, substeps = self.replay, int(self.replay.header["substeps"])
        if "pose" in r and t >= 1:
            i = min(int(t), self.end) - 1
            j, share = min(i + 1, self.end - 1), t - int(t)
            a, b = (r["pose"][k, mech].astype(np.float64) for k in (i, j))
            x, y = (a[:2] + share * (b[:2] - a[:2])) / POSE_UNIT
            return float(x), float(y), float(a[3] / TURN_UNIT)
        d = min(int(t // substeps), r.decisions)
        e, share = min(d + 1, r.decisions), t / substeps - d
        x, y = r["position"][d, mech, :2] + share * (r["position"][e, mech, :2] - r["position"][d, mech, :2])
        return float(x), float(y), float(r["yaw"][d, mech])

    def _spot(self, x: float, y: float) -> tuple[float, float]:
        return x * self.scale, self.height - y * self.scale

    def _ground(self, t: float) -> Any:
        r = self.replay
        target = int(np.searchsorted(r["edit_time"], t, side="right"))
        if self.ground is None or target != self.applied:
            if target < self.applied:
                self.cells, self.applied = r["material"].copy(), 0
            new = slice(self.applied, target)
            self.cells.reshape(-1)[r["edit_voxel"][new]] = r["edit_material"][new]
            self.applied = target
            picture = drawing("PIL.Image").fromarray(terrain_picture(self.cells))
            self.ground = picture.resize((self.width, self.height - self.banner), 0)
        return self.ground

    def _recent(self, kind: str, t: float, life: float) -> Iterator[tuple[int, float]]:
        r = self.replay
        low, high = np.searchsorted(r["event_time"], (t - life, t), side="right")
        for i in range(int(low), int(high)):
            if r["event_kind"][i] == EVENT[kind]:
                yield i, 1.0 - (t - float(r["event_time"][i])) / life

    def draw(self, t: float) -> Any:
        """Return the picture of a moment, t in substeps, as a pillow image."""
        image = drawing("PIL.Image").new("RGB", (self.width, self.height), (14, 19, 28))
        image.paste(self._ground(t), (0, self.banner))
        pen = drawing("PIL.ImageDraw").Draw(image, "RGBA")
        self._zone(pen)
        self._tracks(pen, t)
        alive = np.flatnonzero(self.deaths > t)
        for mech in alive:
            self._mech(pen, t, int(mech))
        self._beams(pen, t)
        self._blasts(pen, t)
        self._smoke(pen, t)
        self._score(pen, t, alive)
        return image.resize((self.width // SMOOTH, self.height // SMOOTH), 1)

    def _disc(self, pen: Any, x: float, y: float, radius: float, **style: Any) -> None:
        px, py = self._spot(x, y)
        r = radius * self.scale
        pen.ellipse((px - r, py - r, px + r, py + r), **style)

    def _zone(self, pen: Any) -> None:
        x, y, radius = (float(v) for v in self.replay["zone"])
        self._disc(pen, x, y, radius, outline=(*WHITE, 230), fill=(*WHITE, 26), width=2 * SMOOTH)

    def _mech(self, pen: Any, t: float, mech: int) -> None:
        r, frame = self.replay, min(int(t // self.replay.header["substeps"]), self.replay.decisions)
        entry = r.header["mechs"][mech]
        kind, colour = r.header["classes"][entry["class"]], TEAMS[entry["team"]]
        flags = int(r["flags"][frame, mech])
        x, y, yaw = self.pose(t, mech)
        half = 0.62 * kind["width"]
        # Blue is a wedge, orange a square with a nose: the shape tells the teams apart too.
        shape: tuple[tuple[float, float], ...] = ((1.3, 0), (-1, 0.9), (-0.55, 0), (-1, -0.9))
        if entry["team"]:
            shape = ((1.35, 0), (0.7, 0.85), (-0.85, 0.85), (-0.85, -0.85), (0.7, -0.85))
        c, s = math.cos(yaw), math.sin(yaw)
        corners = [self._spot(x + half * (a * c - b * s), y + half * (a * s + b * c)) for a, b in shape]
        edge = WHITE if flags & SHUTDOWN else (12, 16, 22)
        pen.polygon(corners, fill=(*colour, 110 if flags & FALLEN else 255), outline=edge, width=SMOOTH)
        if r["painted"][frame, mech] > 0:
            self._disc(pen, x, y, half + 0.7, outline=(*PAINT, 255), width=SMOOTH)
        px, py = self._spot(x, y)
        wide, high = max(half, 0.8) * self.scale, 2 * SMOOTH
        top = py - (half + 0.8) * self.scale - high
        heat = float(r["heat"][frame, mech]) / kind["heat_cap"]
        for row, (share, tone) in enumerate(
            ((float(r["hp"][frame, mech]) / kind["hp"], colour), (heat, (255, 92, 92)))
        ):
            level = top + row * (high + 1)
            pen.rectangle((px - wide, level, px + wide, level + high), fill=(8, 11, 16, 200))
            if share > 0:
                pen.rectangle((px - wide, level, px - wide + 2 * wide * min(1, share), level + high), fill=tone)

    def _tracks(self, pen: Any, t: float) -> None:
        r = self.replay
        low = int(np.searchsorted(r["track_start"], t - self.longest - TRAIL))
        high = int(np.searchsorted(r["track_start"], t, side="right"))
        for k in range(low, high):
            last = int(r["track_points"][k]) - 1
            age = t - float(r["track_start"][k])
            if age > last + TRAIL:
                continue
            points = r["track_position"][self.first_point[k] : self.first_point[k] + last + 1] / TRACK_UNIT
            weapon = int(r["track_weapon"][k])
            colour = {MISSILE: (255, 120, 60), GAUSS: (255, 243, 176)}.get(weapon, (255, 220, 140))
            for back in range(TRAIL):
                a, b = (self._along(points, age - back - extra) for extra in (0.0, 1.0))
                if a is not None and b is not None:
                    fade = int(230 * (1 - back / TRAIL))
                    wide = SMOOTH * (2 if weapon in (MISSILE, GAUSS) else 1)
                    pen.line((*self._spot(*a), *self._spot(*b)), fill=(*colour, fade), width=wide)
            if age <= last:
                head = self._along(points, age)
                if head is not None:
                    self._disc(pen, *head, 0.3, fill=(*colour, 255))

    @staticmethod
    def _along(points: np.ndarray, age: float) -> tuple[float, float] | None:
        """Point of a track at an age in substeps; None before its start and after its end."""
        if age < 0 or age > len(points) - 1:
            return None
        i = min(int(age), max(0, len(points) - 2))
        j = min(i + 1, len(points) - 1)
        x, y = points[i, :2] + (age - i) * (points[j, :2] - points[i, :2])
        return float(x), float(y)

    def _beams(self, pen: Any, t: float) -> None:
        r = self.replay
        for kind, life in (("beam", BEAM_LIFE), ("paint", BEAM_LIFE), ("intercept", BEAM_LIFE)):
            for i, left in self._recent(kind, t, life):
                shooter = int(r["event_a"][i])
                if shooter < 0:
                    continue
                x, y, _ = self.pose(float(r["event_time"][i]), shooter)
                end = self._spot(*(float(v) for v in r["event_position"][i, :2]))
                team = TEAMS[r.header["mechs"][shooter]["team"]]
                colour = PAINT if kind == "paint" else FIRE if r["event_weapon"][i] == FLAMER else team
                line = (*self._spot(x, y), *end)
                pen.line(line, fill=(*colour, int(255 * left)), width=3 * SMOOTH if kind == "beam" else SMOOTH)
                if kind == "beam":
                    pen.line(line, fill=(*WHITE, int(255 * left)), width=SMOOTH)

    def _blasts(self, pen: Any, t: float) -> None:
        r = self.replay
        for i, left in self._recent("explosion", t, BLAST_LIFE):
            x, y = (float(v) for v in r["event_position"][i, :2])
            radius = float(r["event_amount"][i]) * (1.15 - 0.6 * left)
            self._disc(
                pen, x, y, radius, fill=(*FIRE, int(170 * left)), outline=(*WHITE, int(200 * left)), width=SMOOTH
            )
        for i, left in self._recent("kill", t, 2 * BLAST_LIFE):
            x, y, _ = self.pose(float(r["event_time"][i]) - 1, max(0, int(r["event_b"][i])))
            self._disc(pen, x, y, 1.0 + 3.0 * (1 - left), outline=(*WHITE, int(255 * left)), width=2 * SMOOTH)
        for i, left in self._recent("hit", t, BEAM_LIFE):
            x, y = (float(v) for v in r["event_position"][i, :2])
            self._disc(pen, x, y, 0.6, fill=(*WHITE, int(200 * left)))

    def _smoke(self, pen: Any, t: float) -> None:
        r = self.replay
        for i in np.flatnonzero((r["cloud_start"] <= t) & (r["cloud_end"] >= t)):
            x, y = (float(v) for v in r["cloud_position"][i, :2])
            self._disc(pen, x, y, float(r.header["smoke_radius"]), fill=(205, 212, 220, 130))

    def _score(self, pen: Any, t: float, alive: np.ndarray) -> None:
        r, header = self.replay, self.replay.header
        frame = min(int(t // header["substeps"]), r.decisions)
        font = drawing("PIL.ImageFont").load_default(size=0.5 * self.banner)
        seconds = t / header["substeps"] * header["decision_seconds"]
        middle, level = self.width / 2, 0.5 * self.banner
        pen.text((middle, level), f"{seconds:.1f} s", fill=WHITE, font=font, anchor="mm")
        goal = max(float(header["score_to_win"]), 1e-6)
        for team, sign in ((0, -1), (1, 1)):
            score = float(r["score"][frame, team])
            living = sum(header["mechs"][m]["team"] == team for m in alive)
            text = f"{header['names'][team][:18]}  {score:.1f}  [{living}]"
            if team:
                text = f"[{living}]  {score:.1f}  {header['names'][team][:18]}"
            edge = (0.03 if team == 0 else 0.97) * self.width
            pen.text((edge, level), text, fill=TEAMS[team], font=font, anchor="lm" if team == 0 else "rm")
            long = 0.47 * self.width * min(1.0, score / goal)
            a, b = sorted((middle, middle + sign * long))
            pen.rectangle((a, self.banner - 2 * SMOOTH, b, self.banner - 1), fill=TEAMS[team])


def moments(replay: Replay, speed: float) -> np.ndarray:
    """Return the moments, in substeps, that a film of FRAMES_PER_SECOND shows at `speed` times the game's clock."""
    substeps = int(replay.header["substeps"])
    ahead = speed / FRAMES_PER_SECOND / float(replay.header["decision_seconds"]) * substeps
    return np.append(np.arange(0.0, replay.decisions * substeps, ahead), float(replay.decisions * substeps))


def write_gif(path: Path, replay: Replay, width: int = 480, speed: float = 2.0) -> Path:
    """Write a replay from above as an animated GIF and return its path.

    Args:
        width: in pixels.
        speed: times faster than the game's clock.

    Raises:
        MissingExtra: pillow is not installed.
        OSError: the file cannot be written.
    """
    painter, times = Painter(replay, width), moments(replay, speed)
    # One palette for all frames keeps the terrain from flickering.
    palette = painter.draw(float(times[len(times) // 2])).quantize(160)
    images = (painter.draw(float(t)).quantize(palette=palette, dither=0) for t in times)
    path.parent.mkdir(parents=True, exist_ok=True)
    first = next(images)
    shown = 1000 // FRAMES_PER_SECOND
    first.save(path, "GIF", save_all=True, append_images=images, duration=shown, loop=0, optimize=False)
    return path


def film_in_tensorboard(run_dir: Path, replay: Replay, width: int = 480, speed: float = 2.0) -> Path:
    """Add a replay from above to the pictures that TensorBoard shows of a run, and return the folder that holds it.

    It stands at the update that the replay's source names, else at 0. Arguments as for `write_gif`.

    Raises:
        MissingExtra: pillow is not installed.
        OSError: the file cannot be written.
    """
    from echelon_jax.runs.sinks import write_film

    named = re.search(r"at update (\d+)", str(replay.header.get("source", "")))
    with tempfile.TemporaryDirectory() as folder:
        gif = write_gif(Path(folder) / "game.gif", replay, width, speed).read_bytes()
    width, height = struct.unpack_from("<HH", gif, 6)
    return write_film(run_dir, gif, width, height, int(named[1]) if named else 0)


def write_mp4(path: Path, replay: Replay, width: int = 960, speed: float = 1.0) -> Path:
    """Write a replay from above as MP4 (H.264) and return its path; arguments as for `write_gif`.

    Raises:
        MissingExtra: PyAV or pillow is not installed.
        OSError: the file cannot be written.
    """
    av = drawing("av")
    painter = Painter(replay, width)
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", format="mp4") as film:
        stream = film.add_stream("h264", rate=FRAMES_PER_SECOND)
        stream.width, stream.height, stream.pix_fmt = painter.width // SMOOTH, painter.height // SMOOTH, "yuv420p"
        for t in moments(replay, speed):
            film.mux(stream.encode(av.VideoFrame.from_image(painter.draw(float(t)))))
        film.mux(stream.encode())
    return path
