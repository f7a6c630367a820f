"""`echelon arena`: matches between any players, and a league of rated ones in a folder."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from echelon_jax.cli.common import GameFlags, set_up_jax
from echelon_jax.cli.errors import UsageError, checked
from echelon_jax.fields import check_seed

if TYPE_CHECKING:
    from echelon_jax.arena.league import League
    from echelon_jax.config import EnvConfig

DEFAULT_LEAGUE = Path("runs/arena")
DEFAULT_SIZE = 40


@dataclasses.dataclass(frozen=True)
class MatchCommand:
    """Play two players against each other on maps that training never saw, both sides of every map."""

    a: tyro.conf.Positional[str]
    """A run, a checkpoint, a torch export, a .pt of the original, an agent's name (`scripted:hard`), or an entry of the league."""
    b: tyro.conf.Positional[str]
    """The other one, likewise."""
    games: int = 200
    """Games; an even number, two per map."""
    arenas: int | None = None
    """Games side by side, an even number; by default all, up to 1,024."""
    seed: int = 0
    """Of the maps and of every draw."""
    league: Path = DEFAULT_LEAGUE
    """The league whose entries may be named; it is not changed."""
    game: tyro.conf.OmitArgPrefixes[GameFlags] = dataclasses.field(default_factory=GameFlags)
    json: bool = False
    """Print JSON instead of a table."""
    threads: int = 0
    """XLA's CPU threads; 0 leaves the choice to XLA."""
    kernels: str | None = None
    """What runs the simulation: `xla` (the default), `native`, which needs a C++ compiler, or `auto` (docs/kernels.md)."""

    def run(self) -> int:
        """Play and print; returns the exit status."""
        _even(games=self.games, arenas=self.arenas)
        checked(check_seed, self.seed)
        flags = self.game.config(DEFAULT_SIZE)
        set_up_jax(self.threads, kernels=self.kernels)
        from echelon_jax.arena.games import contest, contestant, game_of, maps
        from echelon_jax.cli.arena_tables import contest_table, show

        with _told():
            league = _open(self.league) if (self.league / "league.json").exists() else None
            players = [contestant(name, league) for name in (self.a, self.b)]
            game = game_of(players, flags)
            if self.game != GameFlags():
                _require_game(game, flags, "the policy's game is played")
            worlds = maps(game, self.games, self.seed)
            told = None if self.json else _progress(f"{self.a} - {self.b}")
            a, b = players
            played = contest(game, worlds, a, b, (self.a, self.b), self.seed, self.arenas, told)
        if self.json:
            print(json.dumps({"a": self.a, "b": self.b, **played.summary}, indent=1))
        else:
            show(contest_table([played]))
        return 0


@dataclasses.dataclass(frozen=True)
class PlayCommand:
    """Play a rating period among a league's entries, rate it, and promote and retire by the league's rules."""

    league: Path = DEFAULT_LEAGUE
    """Its folder."""
    schedule: str = "round-robin"
    """`round-robin` (every pair) or `matchmaking` (the `--pairs` pairs whose games tell most)."""
    pairs: int = 10
    """Pairs of a period under matchmaking."""
    games: int = 40
    """Games of each pair; an even number, two per map; all pairs play the same maps."""
    rounds: int = 1
    """Rating periods, each on maps of its own."""
    arenas: int | None = None
    """Games side by side, an even number; by default all of a pair, up to 1,024."""
    seed: int | None = None
    """Of maps and draws; by default the number of the rating period."""
    json: bool = False
    """Print JSON instead of tables."""
    threads: int = 0
    """XLA's CPU threads; 0 leaves the choice to XLA."""
    kernels: str | None = None
    """What runs the simulation: `xla` (the default), `native`, which needs a C++ compiler, or `auto` (docs/kernels.md)."""

    def run(self) -> int:
        """Play, rate and print; returns the exit status."""
        _even(games=self.games, arenas=self.arenas)
        checked(check_seed, self.seed or 0)
        checked(check_seed, (self.seed or 0) + self.rounds - 1, "seed + rounds - 1")
        for name in ("pairs", "rounds"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be a whole number from 1, got {getattr(self, name)}")
        if self.schedule not in ("round-robin", "matchmaking"):
            raise UsageError(f"schedule must be round-robin or matchmaking, got {self.schedule!r}")
        set_up_jax(self.threads, kernels=self.kernels)
        with _told():
            league = _open(self.league)
            for number in range(self.rounds):
                self._period(league, number)
        return 0

    def _period(self, league: League, number: int) -> None:
        from echelon_jax.arena.games import pairing_of, play_pairs
        from echelon_jax.arena.schedule import matchmaking, round_robin
        from echelon_jax.cli.arena_tables import contest_table, ladder_rows, ladder_table, show

        data = league.read()
        pairs = round_robin(data.entries) if self.schedule == "round-robin" else matchmaking(data.entries, self.pairs)
        if not pairs:
            raise UsageError(f"the league in {self.league} must have two entries that play, one of them no anchor")
        seed = data.periods if self.seed is None else self.seed + number
        told = None if self.json else show_progress
        played = play_pairs(league, pairs, self.games, seed, self.arenas, told)
        period = league.record([pairing_of(*pair, one.games) for pair, one in zip(pairs, played, strict=True)])
        if self.json:
            changes = [{"name": e.name, "role": move.role, "why": move.why} for e, move in period.moves]
            contests = [{"a": one.a, "b": one.b, **one.summary} for one in played]
            ladder = ladder_rows(period.data)
            print(json.dumps({"period": period.data.periods, "contests": contests, "moves": changes, "ladder": ladder}))
            return
        show(contest_table(played))
        for entry, move in period.moves:
            print(f"{entry.name} is now {move.role}: {move.why}")
        show(ladder_table(period.data))


@dataclasses.dataclass(frozen=True)
class RateCommand:
    """Compute all ratings of a league anew from its results, with other constants if given, or from all games at once."""

    league: Path = DEFAULT_LEAGUE
    """Its folder."""
    tau: float | None = None
    """How quickly volatilities change (Glicko-2); kept in the league."""
    conservatism: float | None = None
    """Deviations by which a rating is lowered before it counts for promotion; kept in the league."""
    commanders: int | None = None
    """Places among the commanders; kept in the league."""
    joint: bool = False
    """Rate from all games at once, as players whose strength never changes (docs/arena.md), instead of period by period."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        """Rate and print; returns the exit status."""
        from echelon_jax.cli.arena_tables import ladder_rows, ladder_table, show

        with _told():
            league = _open(self.league)
            data = league.read()
            system = dataclasses.replace(data.system, **_given(tau=self.tau))
            rules = dataclasses.replace(
                data.rules, **_given(conservatism=self.conservatism, commanders=self.commanders)
            )
            data = league.rate_again(system, rules)
            if self.joint:
                data = league.rate_jointly()
        if self.json:
            print(json.dumps(ladder_rows(data), indent=1))
        else:
            show(ladder_table(data))
        return 0


@dataclasses.dataclass(frozen=True)
class LadderCommand:
    """Print a league's ratings with their 95 % intervals, best first."""

    league: Path = DEFAULT_LEAGUE
    """Its folder."""
    retired: bool = False
    """Show the retired as well."""
    matrix: bool = False
    """Show the score of each against each as well, so that cycles show."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> int:
        """Print; returns the exit status."""
        from echelon_jax.cli.arena_tables import ladder_rows, ladder_table, matrix_table, show

        with _told():
            data = _open(self.league).read()
        if self.json:
            print(json.dumps(ladder_rows(data, self.retired), indent=1))
            return 0
        show(ladder_table(data, self.retired))
        if self.matrix:
            show(matrix_table(data))
        return 0


@dataclasses.dataclass(frozen=True)
class AddCommand:
    """Add a policy or an agent to a league; the weights are copied into its folder. The league is made if there is none."""

    what: tyro.conf.Positional[str]
    """A run, a checkpoint, a torch export, a .pt of the original, or an agent's name (`scripted:hard`)."""
    league: Path = DEFAULT_LEAGUE
    """Its folder."""
    name: str | None = None
    """For tables; by default made from the path."""
    anchor: bool = False
    """Keep its rating and role for ever, so that it holds the scale."""
    rating: float | None = None
    """To start with; 1500 by default."""
    parent: str | None = None
    """The entry that it was trained from."""
    original: bool = False
    """`what` is a league file of the original: make a league of its entries in `--league`."""
    checkpoints: Path | None = None
    """With `--original`: where to look for weights that are no longer where the file says."""
    game: tyro.conf.OmitArgPrefixes[GameFlags] = dataclasses.field(default_factory=GameFlags)
    json: bool = False
    """Print JSON instead of a sentence."""

    def run(self) -> int:
        """Add and print; returns the exit status."""
        if self.checkpoints is not None and not self.original:
            raise UsageError("checkpoints is for --original; other policies are added by their path")
        flags = self.game.config(DEFAULT_SIZE) if self.game != GameFlags() else None
        set_up_jax(1)
        from echelon_jax.arena.league import League

        with _told():
            if self.original:
                return self._import()
            league = League.create(self.league, flags)
            if flags is not None:
                _require_game(league.game(), flags, f"the league in {self.league} has its game")
            before = {entry.id for entry in league.read().entries}
            role = "anchor" if self.anchor else "candidate"
            entry = league.add(self.what, self.name, role, self.rating, self.parent)
        if self.json:
            print(json.dumps(dataclasses.asdict(entry), indent=1))
        else:
            known = " was there already" if entry.id in before else ""
            print(f"{entry.name} ({entry.role}, {entry.rating:.0f}){known or ' added'} in {self.league}")
        return 0

    def _import(self) -> int:
        from echelon_jax.arena.import_original import import_league
        from echelon_jax.cli.arena_tables import ladder_rows, ladder_table, show

        league, notes = import_league(self.what, self.league, self.checkpoints)
        if self.json:
            print(json.dumps({"notes": notes, "ladder": ladder_rows(league.read(), True)}, indent=1))
            return 0
        for note in notes:
            print(f"note: {note}")
        show(ladder_table(league.read(), True))
        return 0


@dataclasses.dataclass(frozen=True)
class ListCommand:
    """Print all entries of a league: what they are, where they came from and what they were trained from."""

    league: Path = DEFAULT_LEAGUE
    """Its folder."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        """Print; returns the exit status."""
        from echelon_jax.cli.arena_tables import entries_table, show

        with _told():
            data = _open(self.league).read()
        if self.json:
            print(json.dumps([dataclasses.asdict(entry) for entry in data.entries], indent=1))
        else:
            show(entries_table(data))
        return 0


@dataclasses.dataclass(frozen=True)
class RetireCommand:
    """Take an entry out of a league's games; its rating, results and weights stay."""

    name: tyro.conf.Positional[str]
    """Its name or id."""
    league: Path = DEFAULT_LEAGUE
    """Its folder."""
    json: bool = False
    """Print JSON instead of a sentence."""

    def run(self) -> int:
        """Retire and print; returns the exit status."""
        with _told():
            entry = _open(self.league).retire(self.name)
        print(json.dumps(dataclasses.asdict(entry), indent=1) if self.json else f"{entry.name} is retired")
        return 0


Arena = (
    Annotated[PlayCommand, tyro.conf.subcommand("play")]
    | Annotated[RateCommand, tyro.conf.subcommand("rate")]
    | Annotated[LadderCommand, tyro.conf.subcommand("ladder")]
    | Annotated[MatchCommand, tyro.conf.subcommand("match")]
    | Annotated[AddCommand, tyro.conf.subcommand("add")]
    | Annotated[ListCommand, tyro.conf.subcommand("list")]
    | Annotated[RetireCommand, tyro.conf.subcommand("retire")]
)


@dataclasses.dataclass(frozen=True)
class ArenaCommand:
    """Matches between any players, and a league of rated ones: play, rate, ladder, match, add, list, retire."""

    command: tyro.conf.OmitSubcommandPrefixes[Arena]
    """What to do."""

    def run(self) -> int:
        """Run the subcommand; returns the exit status.

        Raises:
            UsageError: a flag out of range, or a league or policy that cannot be used.
        """
        return self.command.run()


@contextmanager
def _told() -> Iterator[None]:
    """Turn what the arena cannot do into a sentence for the user."""
    from echelon_jax.arena.records import LeagueError
    from echelon_jax.runs.checkpoint import CheckpointError

    try:
        yield
    except (LeagueError, CheckpointError, ValueError) as error:
        raise UsageError(str(error)) from error


def _open(folder: Path) -> League:
    from echelon_jax.arena.league import League

    return League(folder)


def _require_game(game: EnvConfig, asked: EnvConfig, why: str) -> None:
    """Refuse flags of the game that would be ignored."""
    fields = [f.name for f in dataclasses.fields(game) if getattr(asked, f.name) != getattr(game, f.name)]
    if fields:
        raise UsageError(f"{why}, and the flags ask for another one; they differ in {', '.join(fields)}")


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _even(**fields: int | None) -> None:
    for name, value in fields.items():
        if value is not None and (value < 2 or value % 2):
            raise UsageError(f"{name} must be an even number from 2, got {value}")


def show_progress(what: str, done: int, total: int) -> None:
    """Rewrite one line on standard error if that is a terminal."""
    if sys.stderr.isatty():
        print(f"\r{what}: {done} of {total} games", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _progress(what: str) -> Callable[[int, int], None]:
    return lambda done, total: show_progress(what, done, total)
