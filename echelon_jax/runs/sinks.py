"""Sinks of a run's metrics: RUN/metrics.jsonl and TensorBoard files; `runs/weights_and_biases.py` is another one.

A line is a flat dictionary of numbers by name (docs/metrics.md). A number without a value is None in the file and left out
elsewhere.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from echelon_jax.runs.checkpoint import CheckpointError

Line = dict[str, Any]


class Sink(Protocol):
    """A sink accepts lines until it is closed."""

    def write(self, line: Line) -> None:
        """Accept one line; its "update" is the position on the axis."""
        ...

    def close(self) -> None:
        """Write all lines that are not written yet."""
        ...


def append_line(path: Path, line: Line) -> None:
    """Append one line of JSON to a file.

    Raises:
        CheckpointError: the disk is full or the file can no longer be written; checkpoints already saved stay.
    """
    try:
        with path.open("a") as log:  # closing flushes, and fails here too where the disk is full
            log.write(json.dumps(line) + "\n")
    except OSError as error:
        raise CheckpointError(f"cannot write to {path}: {error.strerror or error}") from error


def drop_lines_after(path: Path, update: int) -> int:
    """Remove the lines of updates after `update` from a metrics file and return their number; a resumed run does them again.

    A line that a crash cut short is removed too. The file is replaced as a whole, or not at all.

    Raises:
        CheckpointError: the file cannot be replaced.
    """
    if not path.exists():
        return 0
    kept, dropped = [], 0
    for text in path.read_text().splitlines():
        try:
            stays = json.loads(text)["update"] <= update
        except (ValueError, KeyError, TypeError):
            stays = False
        kept += [text + "\n"] if stays else []
        dropped += not stays
    if dropped:
        partial = path.with_suffix(".partial")
        try:
            partial.write_text("".join(kept))
            os.replace(partial, path)
        except OSError as error:
            raise CheckpointError(f"cannot write to {path}: {error.strerror or error}") from error
    return dropped


class JsonLines:
    """RUN/metrics.jsonl; every line is on the disk when `write` returns."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / "metrics.jsonl"

    def write(self, line: Line) -> None:
        """Append the line."""
        append_line(self.path, line)

    def close(self) -> None:
        """Do nothing, because every line is already written."""


class TensorBoard:
    """RUN/tensorboard: one scalar per name, on the axis of updates; `after` is the update that a resumed run goes on from.

    It writes in the foreground. The thread of `SummaryWriter` dies when the disk is full, and the run would wait for it for ever.

    Raises:
        CheckpointError: the disk is full or the file cannot be written; from `write` and `close` too.
    """

    def __init__(self, run_dir: Path, after: int = 0) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        self.folder = run_dir / "tensorboard"
        with self._failures():
            self.folder.mkdir(parents=True, exist_ok=True)
            before = any(self.folder.iterdir())
            self.writer = EventsWriter(str(self.folder / "events"), f".{uuid.uuid4().hex[:8]}")
            if after or before:  # hides what a crashed run wrote beyond its checkpoint
                self._add(Event(step=after + 1, session_log=SessionLog(status=SessionLog.START)))
            self.writer.flush()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CheckpointError(f"cannot write to {self.folder}: {error.strerror or error}") from error

    def _add(self, event: Any) -> None:
        event.wall_time = time.time()
        self.writer.write_event(event)

    def write(self, line: Line) -> None:
        """Write the line's numbers; they are on the disk when it returns."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        with self._failures():
            for name, value in line.items():
                if value is not None and name != "update":
                    self._add(Event(step=line["update"], summary=scalar(name, value)))
            self.writer.flush()

    def close(self) -> None:
        """Close the file."""
        with self._failures():
            self.writer.close()


def write_film(run_dir: Path, gif: bytes, width: int, height: int, update: int) -> Path:
    """Add an animated GIF to the pictures that TensorBoard shows of a run; returns its folder, RUN/tensorboard/games.

    The folder is one of its own, so that a run that is still training keeps the file that it writes.

    Raises:
        OSError: the place cannot be written.
    """
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary

    folder = run_dir / "tensorboard" / "games"
    folder.mkdir(parents=True, exist_ok=True)
    writer = EventsWriter(str(folder / "events"), f".{uuid.uuid4().hex[:8]}")
    image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=gif)
    summary = Summary(value=[Summary.Value(tag="game", image=image)])
    writer.write_event(Event(step=update, wall_time=time.time(), summary=summary))
    writer.close()
    return folder


class Sinks:
    """Several sinks as one; a context manager that closes all of them, whatever happens."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.sinks = list(sinks)

    def __enter__(self) -> Sinks:
        return self

    def write(self, line: Line) -> None:
        """Hand the line to every sink, the file first."""
        for sink in self.sinks:
            sink.write(line)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close every sink. An error of a sink is raised, or added as a note to an exception that is already raised."""
        failures: list[CheckpointError] = []
        for sink in self.sinks:
            try:
                sink.close()
            except CheckpointError as closing:
                failures.append(closing)
        if error is not None:
            for failure in failures:
                error.add_note(str(failure))
        elif failures:
            raise failures[0]
