"""`echelon train`: one command that trains a policy, saves checkpoints and prints a table of games."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tyro

from echelon_jax.cli.common import AUTO, GameFlags, set_up_jax, settled_kernels
from echelon_jax.cli.configuration import read_configuration
from echelon_jax.cli.errors import UsageError, checked
from echelon_jax.cli.fields import given, override_flags
from echelon_jax.config import EnvConfig
from echelon_jax.fields import check_seed
from echelon_jax.training.config import LEAGUE, PRESETS, TrainConfig
from echelon_jax.training.devices import arenas_unit

DEFAULT_PRESET = "cpu"
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # gs://bucket/run, of which Path has dropped a slash
DEFAULT_SIZE = {"smoke": 28, "cpu": 40, "gpu": 60}
_FITTING = f"`{AUTO}` for as many as fit into the device's free memory (docs/scale.md); the run keeps the number."
_SUITING = f"`{AUTO}` for `native` on a CPU that can have it, else `xla`; the run keeps which."
TrainFlags: Any = override_flags(
    TrainConfig, "TrainFlags", words={"arenas": (AUTO, _FITTING), "kernels": (AUTO, _SUITING)}
)


@dataclasses.dataclass(frozen=True)
class TrainCommand:
    """Train a recurrent policy against an opponent, save it, and play evaluation games at the end."""

    preset: str | None = None
    """`smoke` (seconds), `cpu` (the default, some six minutes on two cores, native) or `gpu`."""
    config: Path | None = None
    """Use the configuration of a run, RUN/config.json, instead of a preset; other flags override single fields."""
    game: tyro.conf.OmitArgPrefixes[GameFlags] = dataclasses.field(default_factory=GameFlags)
    train: tyro.conf.OmitArgPrefixes[TrainFlags] = dataclasses.field(default_factory=TrainFlags)
    run_dir: Path | None = None
    """Directory of the run; by default runs/<preset>-<size>-seed<seed>, with a number added if that exists."""
    resume: bool = False
    """Continue the run in --run-dir from its last checkpoint, with its own configuration unless a preset is named. With a preset
    or --config, start it if there is none, so that one command line both starts and requeues a run."""
    at_update: int | None = None
    """With --resume: continue from the checkpoint that was kept of this update; what the run did after it is removed."""
    total_steps: int | None = None
    """Length of the run in environment steps (decisions of an arena), instead of --updates: as many updates as hold them."""
    start_from: Path | None = None
    """Begin with the policy of this run or checkpoint, trained on other maps, teams or opponents, and have its network."""
    seeds: int = 1
    """Number of learners in one program, with the seeds --seed, --seed + 1 and so on, in RUN/seed0, RUN/seed1, ..."""
    save_every: int = 10
    """Most calls that a crash repeats (docs/reliability.md); the last state is always saved."""
    keep: int = 3
    """Number of the last checkpoints that stay."""
    keep_best: bool = True
    """Also keep the best checkpoint, by its validation games or by recent training games, in RUN/checkpoints/best."""
    eval_games: int = 100
    """Evaluation games against each opponent at the end; 0 for none."""
    league_games: int = 20
    """Games of every pair of a league's history at the end, for the matrix in RUN/league_matrix.png; 0 takes the training games."""
    dry_run: bool = False
    """Print shapes, memory and plan, and stop. Nothing is compiled or written."""
    watch: bool = False
    """Serve a page with the curves and the newest validation game while the run trains (docs/replays.md)."""
    watch_host: str = "127.0.0.1"
    """Address at which the page is served; by default only programs of this machine reach it."""
    watch_port: int = 8410
    """Port of the page, or the next free one; 0 for any."""
    wandb: str | None = None
    """Send metrics to this Weights & Biases project as well (needs the extra `wandb`)."""
    wandb_group: str | None = None
    """Group of that run among others, such as the seeds of one setting."""
    wandb_tags: tuple[str, ...] = ()
    """Its tags."""
    wandb_offline: bool = False
    """Keep it in RUN/wandb, without a login or a network; `wandb sync` sends it later."""
    wandb_artifacts: bool = False
    """Send the checkpoints and replays of the run's directory too, when the run ends."""
    time_parts: bool = False
    """Measure a rollout alone at the start, so that metrics separate rollout and update; this compiles a second program."""
    json: bool = False
    """Print JSON instead of tables: the run, its updates and env-steps, CPU seconds, evaluation and paths."""
    threads: int = 0
    """XLA's CPU threads; 0 leaves the choice to XLA."""

    def run(self) -> int:
        """Train; returns the exit status.

        Raises:
            UsageError: a flag out of range, a directory that cannot be written, a checkpoint that cannot be used.
        """
        config, env_config = self.configurations()
        if self.save_every < 1:
            raise UsageError(f"save-every must be a whole number from 1, got {self.save_every}")
        if self.keep < 1:
            raise UsageError(f"keep must be a whole number from 1, got {self.keep}")
        if self.eval_games < 0 or self.eval_games % 2:
            raise UsageError(f"eval-games must be an even number from 0, got {self.eval_games}")
        if self.wandb is None and (self.wandb_group or self.wandb_tags or self.wandb_offline or self.wandb_artifacts):
            raise UsageError("wandb must name a project where wandb-group, -tags, -offline or -artifacts is given")
        if self.league_games < 0 or self.league_games % 2:
            raise UsageError(f"league-games must be an even number from 0, got {self.league_games}")
        if self.seeds > 1 and config.opponent == LEAGUE:
            raise UsageError("seeds must be 1 with --opponent league, whose runs each keep a league of their own")
        if self.seeds > 1 and self._fits_memory:
            raise UsageError(f"arenas must be a number with seeds, got {AUTO!r}")
        if self.seeds < 1:
            raise UsageError(f"seeds must be a whole number from 1, got {self.seeds}")
        if self.at_update is not None and (not self.resume or self.seeds > 1 or self.at_update < 0):
            raise UsageError(
                f"at-update must be an update from 0 of one run, with --resume and without seeds, got {self.at_update}"
            )
        if self.start_from is not None and self.seeds > 1:
            raise UsageError("start-from must be left out with seeds")
        if self.run_dir is not None and _ADDRESS.match(str(self.run_dir)):
            raise UsageError(f"run-dir must be a directory of this machine, got the address {str(self.run_dir)!r}")
        checked(check_seed, config.seed + self.seeds - 1, "seed + seeds - 1")
        if self.seeds > 1 and self.time_parts:
            raise UsageError("time-parts must be left out with seeds, whose rollouts are one program")
        if self.seeds > 1 and self.watch:
            raise UsageError("watch must be left out with seeds: the page shows one run")
        if not 0 <= self.watch_port <= 65535:
            raise UsageError(f"watch-port must be a whole number from 0 to 65535, got {self.watch_port}")
        run_dir = self.run_dir or _fresh_directory(
            f"{self.preset or ('again' if self.config else DEFAULT_PRESET)}-{env_config.size_x}-seed{config.seed}"
        )
        config, fits = self._set_up(config, env_config, run_dir)
        if self.preset == "gpu" and not self.dry_run:
            _require_gpu()

        from echelon_jax.arena.records import LeagueError
        from echelon_jax.cli.trained import cpu_seconds, told_of_run
        from echelon_jax.evaluation.validation import Validator
        from echelon_jax.policies.registry import make_network
        from echelon_jax.runs.checkpoint import CheckpointError
        from echelon_jax.training.reward_weights import check_curriculum, reward_weights
        from echelon_jax.training.teacher import check_agents

        checked(reward_weights, config, env_config)
        checked(check_curriculum, config, env_config)
        checked(make_network, config, env_config)
        checked(check_agents, config, env_config)
        try:
            checked(Validator, config, env_config)  # names an opponent that cannot be played, before anything is made
        except CheckpointError as error:
            raise UsageError(str(error)) from error
        if self.dry_run:
            from echelon_jax.cli.plan import print_plan

            print_plan(config, env_config, run_dir, self.save_every, self.eval_games, fits=fits, as_json=self.json)
            return 0
        if fits:
            print(f"arenas: {config.arenas}, which fit into {fits}", file=sys.stderr)
        options: dict[str, Any] = {
            "resume": self.resume,
            "save_every": self.save_every,
            "keep": self.keep,
            "keep_best": self.keep_best,
            "sinks": self._sinks,
            "validator": Validator,
        }
        try:
            with contextlib.redirect_stdout(sys.stderr):  # progress and hints; results go to standard output
                run_dirs, stopped = self._train(run_dir, config, env_config, options)
            played: dict[Path, Any] = {}
            if (
                self.eval_games and not stopped
            ):  # whoever stops a run gives it seconds, and evaluation games take minutes
                played = {path: self._evaluate(path, config) for path in run_dirs}
            if config.opponent == LEAGUE and not stopped:
                self._write_matrix(run_dir, config.seed)
            if self.json:
                runs = [told_of_run(path, played.get(path), stopped) for path in run_dirs]
                print(json.dumps({"runs": runs, "cpu_seconds": round(cpu_seconds(), 1)}, indent=1))
        except (CheckpointError, LeagueError) as error:
            raise UsageError(str(error)) from error
        if not self.json:
            for path in run_dirs:
                print(f"wrote {path}")
        return 0

    def _train(
        self, run_dir: Path, config: TrainConfig, env_config: EnvConfig, options: dict[str, Any]
    ) -> tuple[list[Path], bool]:
        """Train one run or those of several seeds; returns their directories, and whether a signal stopped them."""
        from echelon_jax.runs import kept
        from echelon_jax.runs.runner import Runner

        if self.seeds > 1:
            from echelon_jax.runs.seeds import seed_directories, train_seeds

            run_dirs, stops = seed_directories(run_dir, self.seeds), list[bool]()
            train_seeds(run_dir, config, env_config, self.seeds, on_stop=lambda: stops.append(True), **options)
            stopped = bool(stops)
        else:
            if self.at_update:
                kept.at_update(run_dir, self.at_update)  # names the updates that were kept
            options |= {"start_from": self.start_from, "time_parts": self.time_parts, "at": self.at_update}
            if config.opponent == LEAGUE:
                from echelon_jax.arena.run_league import RunLeague

                options["companion"] = checked(RunLeague, run_dir, config, env_config)
            with self._watched(run_dir, config, env_config, options):
                runner = Runner(run_dir, config, env_config, **options)
                runner.train()
            run_dirs, stopped = [run_dir], runner.stopped
        if stopped:
            for path in run_dirs:
                print(f"evaluate it with: echelon evaluate {shlex.quote(str(path))}")
        return run_dirs, stopped

    def configurations(self) -> tuple[TrainConfig, EnvConfig]:
        """The whole configuration that the flags ask for, validated.

        Raises:
            UsageError: naming the field and its allowed values.
        """
        if self.preset is not None and self.preset not in PRESETS:
            raise UsageError(f"preset must be one of {', '.join(PRESETS)}, got {self.preset!r}")
        if self.resume and self.run_dir is None:
            raise UsageError("resume needs --run-dir, the run to continue")
        if self.config is not None and self.preset is not None:
            raise UsageError("config and preset exclude each other: a saved configuration holds every field")
        saved = self.config
        if self.resume and self.run_dir is not None and self.preset is None and saved is None:
            saved = self.run_dir / "seed0" if self.seeds > 1 else self.run_dir
            if not (saved / "config.json").is_file():
                raise UsageError(
                    f"run-dir must be a run to resume, and there is no config.json in {saved}; "
                    "to start a run where there is none, name a --preset or a --config too"
                )
        changes = given(self.train)
        if self._fits_memory:
            del changes["arenas"]
        if saved is None or "kernels" in changes:
            changes["kernels"] = settled_kernels(changes.get("kernels"))
        if self.start_from is not None and saved is None:
            changes.setdefault("teacher", "")  # the policy is past what a preset's teacher shows
            changes = {**self._network_of_start(self.start_from), **changes}
        if saved is None:
            preset = self.preset or DEFAULT_PRESET
            from echelon_jax.training.reward_weights import preset_for

            env_config = self.game.config(DEFAULT_SIZE[preset])
            config = preset_for(preset, env_config, **changes)
        else:
            train, env = read_configuration(saved)
            config = TrainConfig(**{**train, **changes})
            env_config = self.game.config(DEFAULT_SIZE["cpu"], env)
        if self._fits_memory:
            arenas = self._kept_arenas() or arenas_unit(max(1, config.shares), max(1, config.devices))
            config = dataclasses.replace(config, arenas=arenas)
        return checked(self._with_length(config).validate), env_config

    @staticmethod
    def _network_of_start(path: Path) -> dict[str, Any]:
        from echelon_jax.runs.checkpoint import CheckpointError
        from echelon_jax.runs.warm_start import network_fields

        try:
            return network_fields(path)
        except CheckpointError as error:
            raise UsageError(f"start-from must name a policy: {error}") from error

    @property
    def _fits_memory(self) -> bool:
        return bool(self.train.arenas == AUTO)

    def _kept_arenas(self) -> int | None:
        """The arenas of the run to resume, if there is one: it goes on with them, whatever memory is free now."""
        if not self.resume or self.run_dir is None or not (self.run_dir / "config.json").is_file():
            return None
        return int(read_configuration(self.run_dir)[0]["arenas"])

    @contextlib.contextmanager
    def _watched(
        self, run_dir: Path, config: TrainConfig, env_config: EnvConfig, options: dict[str, Any]
    ) -> Iterator[None]:
        """With --watch, serve the page of a run; `options`, those of its Runner, get what feeds it."""
        if not self.watch:
            yield
            return
        from echelon_jax.cli.live import live_page

        with live_page(run_dir, config, env_config, self.watch_host, self.watch_port, self.at_update) as (
            feed,
            validator,
        ):
            options["sinks"] = lambda run_dir, described: [*self._sinks(run_dir, described), feed]
            options["validator"] = validator
            yield

    def _set_up(self, config: TrainConfig, env_config: EnvConfig, run_dir: Path) -> tuple[TrainConfig, str]:
        """Start JAX with the devices that the run needs. Return the configuration with their number, and what its arenas fit into.

        The words are empty unless the arenas were to fit into the memory and the run is a new one.
        """
        from echelon_jax.runs.checkpoint import CheckpointError
        from echelon_jax.runs.devices import processor_cores, settled, virtual_devices

        if self.seeds > 1:  # the learners take turns on one device
            set_up_jax(self.threads, kernels=config.kernels)
            return config, ""
        fit = self._fits_memory and self._kept_arenas() is None
        try:
            # Arenas that fit are a multiple of any number of devices.
            cores = config.devices or processor_cores() if fit else virtual_devices(config, run_dir)
            set_up_jax(self.threads, cores, config.kernels)

            import jax

            if fit:
                from echelon_jax.runs.memory import fitted

                devices = jax.devices()[: config.devices or None]
                config, words = checked(fitted, config, env_config, devices)
                return checked(self._with_length(config).validate), words
            return settled(config, run_dir, len(jax.devices())), ""
        except CheckpointError as error:
            raise UsageError(str(error)) from error

    def _sinks(self, run_dir: Path, described: dict[str, Any]) -> list[Any]:
        if self.wandb is None:
            return []
        from echelon_jax.runs.weights_and_biases import Options, WeightsAndBiases

        options = Options(self.wandb_group, self.wandb_tags, self.wandb_offline, self.wandb_artifacts)
        return [WeightsAndBiases(self.wandb, run_dir, described, options)]

    def _with_length(self, config: TrainConfig) -> TrainConfig:
        """The configuration with as many updates as `total_steps` asks for, in whole calls."""
        if self.total_steps is None:
            return config
        if "updates" in given(self.train):
            raise UsageError("total-steps and updates exclude each other: both say how long the run is")
        if self.total_steps < 1:
            raise UsageError(f"total-steps must be a whole number from 1, got {self.total_steps}")
        calls = -(-self.total_steps // (config.decisions_per_update * config.updates_per_call))
        return dataclasses.replace(config, updates=calls * config.updates_per_call)

    def _evaluate(self, run_dir: Path, config: TrainConfig) -> dict[str, Any]:
        """Play the evaluation games of a run, write them, and return the results by opponent."""
        from echelon_jax.cli.evaluate import show_progress
        from echelon_jax.evaluation.matches import evaluate
        from echelon_jax.evaluation.tables import behaviour_table, games_table
        from echelon_jax.runs.checkpoint import load_policy
        from echelon_jax.terminal import PlainConsole

        policy, console = load_policy(run_dir), PlainConsole()
        told = f"Playing {self.eval_games} evaluation games on maps that training never saw ..."
        print(told, file=sys.stderr, flush=True)
        opponents, games = ("scripted", "random"), self.eval_games
        # Side by side as in a validation, so that the same compiled program plays them.
        arenas = min(games, config.validation_games) if config.validation_every else games
        evaluation = evaluate(policy, opponents, games=games, arenas=arenas, seed=config.seed, progress=show_progress)
        results = evaluation.against
        (run_dir / "evaluation.json").write_text(json.dumps(results, indent=1))
        if not self.json:
            console.print(games_table(f"{run_dir} after update {policy.update}", results))
            console.print(behaviour_table(results))
        return dict(results)

    def _write_matrix(self, run_dir: Path, seed: int) -> None:
        """Write who beats whom in the run's league, as JSON, as a table and as a picture."""
        from echelon_jax.arena.history import history
        from echelon_jax.arena.league import League
        from echelon_jax.arena.run_league import FOLDER
        from echelon_jax.cli.evaluate import show_progress
        from echelon_jax.viewing.pictures import matrix_figure, write_figure

        found = history(League(run_dir / FOLDER), self.league_games, seed, progress=show_progress)
        try:
            (run_dir / "league_matrix.json").write_text(json.dumps(found.report(), indent=1))
            (run_dir / "league_matrix.md").write_text(found.markdown())
            names = [f"{e.name} ({e.rating:.0f})" for e in found.entries]
            figure = matrix_figure(names, found.scores, "score of the row against the column, percent")
            write_figure(run_dir / "league_matrix.png", figure)
        except OSError as error:
            raise UsageError(f"cannot write to {run_dir}: {error.strerror or error}") from error
        if not self.json:
            print(f"who beats whom: {run_dir / 'league_matrix.md'} and .png")


def _require_gpu() -> None:
    import jax

    try:
        jax.devices("gpu")
    except RuntimeError as error:
        raise UsageError("the gpu preset needs a GPU that JAX can see, and there is none; use --preset cpu") from error


def _fresh_directory(name: str) -> Path:
    base, number = Path("runs") / name, 1
    path = base
    while path.exists():
        number += 1
        path = base.with_name(f"{name}-{number}")
    return path
