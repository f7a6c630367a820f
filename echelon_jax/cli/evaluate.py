"""`echelon evaluate`: a trained policy against scripted, random or another policy, on paired maps."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from echelon_jax.agents.registry import is_agent_name, is_zoo_name
from echelon_jax.cli.common import set_up_jax
from echelon_jax.cli.errors import UsageError, checked
from echelon_jax.fields import check_seed
from echelon_jax.terminal import PlainConsole

if TYPE_CHECKING:
    from echelon_jax.evaluation.matches import Evaluation
    from echelon_jax.evaluation.recording import Recorder


@dataclasses.dataclass(frozen=True)
class EvaluateCommand:
    """Play evaluation games and print a table. Both sides of every map are played; games end where the environment ends them."""

    policy: tyro.conf.Positional[Path]
    """A checkpoint, a run directory (its last checkpoint is taken), or a policy of the zoo, zoo:NAME."""
    at_update: int | None = None
    """Take the checkpoint of a run that was kept of this update, instead of its last."""
    opponents: tuple[str, ...] = ("scripted", "random")
    """Opponents: `scripted`, `scripted:0.5` (its fire rate), `random`, zoo:NAME, or paths of runs or checkpoints."""
    games: int = 200
    """Games against each opponent; an even number, two per map."""
    arenas: int = 100
    """Games side by side; an even number."""
    seed: int = 0
    """Seed of the maps, which training never uses, and of every draw."""
    fire_probability: float = 1.0
    """Fire rate of a `scripted` opponent whose name gives none; 1 is its full rate."""
    deterministic: bool = False
    """Take the policy's most likely action instead of a sample."""
    json: bool = False
    """Print JSON instead of tables."""
    out: Path | None = None
    """Directory for evaluation.json, evaluation.png (behaviour against the first opponent), the GIF and the replay."""
    gif: int | None = None
    """Number of a game against the first opponent, counted from 0, to draw from above as OUT/game<number>.gif."""
    replay: int | None = None
    """The same, to keep as a replay with its page, OUT/game<number>.echelon and .html."""
    threads: int = 0
    """XLA's CPU threads; 0 leaves the choice to XLA."""
    kernels: str | None = None
    """What runs the simulation: `xla` (the default), `native`, which needs a C++ compiler, or `auto` (docs/kernels.md)."""

    def run(self) -> int:
        """Play and print; returns the exit status.

        Raises:
            UsageError: a flag out of range, or a checkpoint that cannot be used.
        """
        self._check()
        set_up_jax(self.threads, kernels=self.kernels)
        from echelon_jax.evaluation.matches import evaluate
        from echelon_jax.evaluation.recording import Recorder
        from echelon_jax.runs.checkpoint import CheckpointError
        from echelon_jax.runs.kept import at_update
        from echelon_jax.viewing.extras import MissingExtra, drawing

        watched = self.gif if self.gif is not None else self.replay
        record = Recorder(watched) if watched is not None else None
        try:
            if self.out is not None:
                drawing("matplotlib.figure")  # rather now than after the games
                self.out.mkdir(parents=True, exist_ok=True)
            result = evaluate(
                self.policy if self.at_update is None else at_update(self.policy, self.at_update),
                self.opponents,
                games=self.games,
                arenas=min(self.arenas, self.games),
                seed=self.seed,
                fire_probability=self.fire_probability,
                deterministic=self.deterministic,
                record=record,
                progress=None if self.json else show_progress,
            )
        except (CheckpointError, MissingExtra, ValueError) as error:
            raise UsageError(str(error)) from error
        except OSError as error:
            raise UsageError(f"cannot write to {self.out}: {error.strerror or error}") from error
        self._report(result, record)
        return 0

    def _report(self, result: Evaluation, record: Recorder | None) -> None:
        """Write what was played, print it, and draw it last; what cannot be written or drawn does not keep it from the rest."""
        failures = []
        if self.out is not None:
            try:
                (self.out / "evaluation.json").write_text(json.dumps(result.report(), indent=1))
            except OSError as error:
                failures.append(f"cannot write to {self.out}: {error.strerror or error}")
        if self.json:
            print(json.dumps(result.report(), indent=1))
        else:
            from echelon_jax.evaluation.tables import behaviour_table, games_table

            console = PlainConsole()
            console.print(games_table(f"{self.policy} at update {result.update}", result.against))
            console.print(behaviour_table(result.against))
        if self.out is not None and not failures:
            try:
                self._draw(self.out, result, record)
            except OSError as error:
                failures.append(f"cannot write to {self.out}: {error.strerror or error}")
        if failures:
            raise UsageError(failures[0])
        if self.out is not None:
            print(f"wrote {self.out}", file=sys.stderr)

    def _check(self) -> None:
        for name in ("games", "arenas"):
            if getattr(self, name) < 2 or getattr(self, name) % 2:
                raise UsageError(f"{name} must be an even number from 2, got {getattr(self, name)}")
        if not 0 <= self.fire_probability <= 1:
            raise UsageError(f"fire-probability must be from 0 to 1, got {self.fire_probability}")
        checked(check_seed, self.seed)
        if not is_zoo_name(self.policy) and not self.policy.exists():
            if is_agent_name(str(self.policy)):
                match = f"echelon arena match {self.policy} OTHER"
                raise UsageError(
                    f"policy must be a run, a checkpoint or zoo:NAME; for the agent {self.policy} there is `{match}`"
                )
            raise UsageError(f"there is no checkpoint at {self.policy}")
        if not self.opponents:
            raise UsageError("opponents must name at least one")
        for name in ("gif", "replay"):
            game = getattr(self, name)
            if game is not None and (self.out is None or not 0 <= game < self.games):
                raise UsageError(
                    f"{name} must be a game from 0 to {self.games - 1}, with --out for its place, got {game}"
                )
        if None not in (self.gif, self.replay) and self.gif != self.replay:
            raise UsageError(f"replay must be the game of --gif, {self.gif}, got {self.replay}")
        for name in self.opponents:
            if not is_agent_name(name) and not is_zoo_name(name) and not Path(name).exists():
                raise UsageError(
                    f"opponents must be scripted, random, the path of a checkpoint or zoo:NAME, got {name!r}"
                )

    def _draw(self, out: Path, result: Evaluation, record: Recorder | None) -> None:
        from echelon_jax.viewing.pictures import evaluation_figure, write_figure
        from echelon_jax.viewing.topdown import write_gif

        write_figure(out / "evaluation.png", evaluation_figure(result))
        if record is not None and self.gif is not None:
            path = out / f"game{record.game}.gif"
            write_gif(path, result.env_config, record.frames, a_is_blue=self.gif % 2 == 0)
        if record is not None and self.replay is not None:
            self._write_replay(out, self.replay, result, record)

    def _write_replay(self, out: Path, game: int, result: Evaluation, record: Recorder) -> None:
        import numpy as np

        from echelon_jax.replay.build import Origin, make_replay
        from echelon_jax.replay.file import SUFFIX, write_replay
        from echelon_jax.replay.page import write_page

        names = [self.policy.name, Path(self.opponents[0]).name]
        blue, red = names if game % 2 == 0 else names[::-1]
        title = f"{names[0]} against {names[1]}, game {game}"
        trace = record.trace()
        if trace.value is not None and not np.any(trace.value):
            trace = trace.replace(value=None)
        replay = make_replay(
            result.env_config, trace, Origin(blue, red, title, f"evaluation at update {result.update}")
        )
        path = out / f"game{game}{SUFFIX}"
        write_replay(path, replay)
        write_page(path.with_suffix(".html"), replay)


def show_progress(opponent: str, done: int, total: int) -> None:
    """Show how many games are finished, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r{opponent}: {done} of {total} games", end="" if done < total else "\n", file=sys.stderr, flush=True)
