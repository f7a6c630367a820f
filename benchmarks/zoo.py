"""The policies that come with the package: `python benchmarks/zoo.py add NAME CHECKPOINT`, then `... rate` (docs/zoo.md).

add NAME RUN        put the policy of a run or checkpoint into the zoo; `rate` must follow
rate [NAME ...]     play the policies of each game against each other and the skill levels, and write ratings into the cards
train NAME          train a policy of the zoo anew from its card, into runs/zoo-NAME
check NAME          play some games and tell whether they fit the card
list                what there is
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from echelon_jax.arena.pool import ANCHOR, LEVELS
from echelon_jax.jax_setup import set_up_jax


@dataclasses.dataclass(frozen=True)
class Add:
    """Put a policy into the zoo."""

    name: tyro.conf.Positional[str]
    """Letters, digits and hyphens."""
    policy: tyro.conf.Positional[Path]
    """A run or a checkpoint."""
    about: str = ""
    """One sentence about it."""
    start_from: str | None = None
    """The policy that its training started from, `zoo:NAME`; `train` starts from it too."""

    def run(self) -> None:
        from echelon_jax.runs import zoo
        from echelon_jax.runs.checkpoint import load_policy

        policy = load_policy(self.policy)
        told = {"text": self.about, "extra": {k: v for k, v in policy.extra.items() if k not in ("games", "companion")}}
        if self.start_from is not None:
            told["start_from"] = self.start_from
        print(zoo.write(self.name, policy, told))


@dataclasses.dataclass(frozen=True)
class Rate:
    """Rate the policies of each game, together with the skill levels, and write the cards."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Only the games of these policies."""
    games: int = 100
    """Of each pair in each period; an even number."""
    periods: int = 2
    """Rating periods, each on maps of its own."""
    seed: int = 100
    """Of the first period's maps."""

    def run(self) -> None:
        from echelon_jax.runs import zoo

        cards = {name: zoo.card(name) for name in zoo.names()}
        games = {json.dumps(cards[name]["env"], sort_keys=True) for name in self.names or cards}
        for game in sorted(games):
            group = [name for name, card in cards.items() if json.dumps(card["env"], sort_keys=True) == game]
            for name, told in self.rated(group).items():
                zoo.write_card({**cards[name], **told})
                print(name, json.dumps(told["rating"]))

    def rated(self, names: list[str]) -> dict[str, dict[str, Any]]:
        """Ratings and scores of policies of one game."""
        from echelon_jax.arena.pool import rate_pool

        pool = rate_pool({f"zoo:{n}": f"zoo:{n}" for n in names}, self.games, self.periods, self.seed, LEVELS, shown)
        return {
            name: {
                "rating": {**pool.rating(f"zoo:{name}"), "anchor": ANCHOR},
                "against": {level: pool.score(f"zoo:{name}", level) for level in LEVELS},
            }
            for name in names
        }


@dataclasses.dataclass(frozen=True)
class Train:
    """Train a policy of the zoo anew, with the configuration of its card."""

    name: tyro.conf.Positional[str]
    """Its name."""
    run_dir: Path | None = None
    """Directory of the run; by default runs/zoo-NAME."""

    def run(self) -> None:
        from echelon_jax.arena.run_league import RunLeague
        from echelon_jax.evaluation.validation import Validator
        from echelon_jax.runs import migrations, zoo
        from echelon_jax.runs.runner import Runner
        from echelon_jax.training.config import LEAGUE

        card = zoo.card(self.name)
        config, env_config = migrations.train_config(card["train"]), migrations.env_config(card["env"])
        run_dir, start = self.run_dir or Path("runs") / f"zoo-{self.name}", card["about"].get("start_from")
        options: dict[str, Any] = {"validator": Validator, "start_from": None if start is None else Path(start)}
        if config.opponent == LEAGUE:
            options["companion"] = RunLeague(run_dir, config, env_config)
        Runner(run_dir, config, env_config, **options).train()


@dataclasses.dataclass(frozen=True)
class Check:
    """Play games of a policy against a skill level and tell whether the score fits its card."""

    name: tyro.conf.Positional[str]
    """Its name."""
    games: int = 40
    """An even number."""
    level: str = ANCHOR
    """The opponent."""
    seed: int = 7
    """Of the maps."""

    def run(self) -> None:
        from echelon_jax.evaluation.matches import evaluate
        from echelon_jax.runs import zoo

        told = zoo.card(self.name)["against"][self.level]
        found = evaluate(f"zoo:{self.name}", self.level, games=self.games, seed=self.seed).against[self.level]
        fits = found["score_low"] <= told["high"] and told["low"] <= found["score_high"]
        print(json.dumps({"card": told, "found": {k: found[k] for k in ("games", "score", "score_low", "score_high")}}))
        sys.exit(0 if fits else 1)


@dataclasses.dataclass(frozen=True)
class List:
    """Print what the zoo holds, as a table."""

    def run(self) -> None:
        from echelon_jax.markdown import table
        from echelon_jax.runs import zoo

        rows = []
        for name in zoo.names():
            told = zoo.card(name)
            env, rating = told["env"], told.get("rating")
            team = 5 * env["num_packs"]
            shown = "-" if rating is None else f"{rating['rating']:.0f} ({rating['low']:.0f} to {rating['high']:.0f})"
            game = f"{team}v{team}, {env['size_x']}x{env['size_y']}, {env['observation']} observation"
            rows.append([f"`zoo:{name}`", game, f"{told['env_steps']:,}", shown, told["about"]["text"]])
        print(table(["name", "game", "environment steps", "rating", "about"], rows))


def shown(pair: str, done: int, total: int) -> None:
    """Progress, where somebody looks."""
    if sys.stderr.isatty():
        print(f"\r{pair}: {done} of {total}", end="" if done < total else "\n", file=sys.stderr, flush=True)


Command = (
    Annotated[Add, tyro.conf.subcommand("add")]
    | Annotated[Rate, tyro.conf.subcommand("rate")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[List, tyro.conf.subcommand("list")]
)

if __name__ == "__main__":
    set_up_jax(1)
    tyro.cli(Command, description=__doc__).run()
