"""The league of a run on the host: `--opponent league` submits the policy, rates it, and fills the slots on the device.

    RUN/league/                    a league like any other (`league`)
               history/<update>    its file after each submission

After every `league_every` updates, and after the last one, the learner joins as a candidate. Its training games since the last
submission are its first results: one rating period against every opponent that it met. The rules of the league promote and retire.
Then everybody is rated anew from all games of the run (`joint`), because nobody in this league changes. Then the new policy is
offered to a slot: an empty one, else that of a retired entry, else that of the opponent that the learner beats most often.

A resumed run takes the league back to the submission that its checkpoint knows, so that nothing is rated twice.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from echelon_jax.agents.registry import make_agent
from echelon_jax.arena import storage
from echelon_jax.arena.league import League
from echelon_jax.arena.records import Entry, LeagueData, LeagueError, Pairing
from echelon_jax.config import EnvConfig
from echelon_jax.policies.network import Network
from echelon_jax.runs.checkpoint import CheckpointError
from echelon_jax.runs.policy import Policy
from echelon_jax.runs.warm_start import network_fields
from echelon_jax.training.config import TrainConfig
from echelon_jax.training.league import state as on_device
from echelon_jax.training.league.draw import scores
from echelon_jax.training.league.state import LeagueState
from echelon_jax.training.trainer import Train, TrainState

FOLDER, HISTORY = "league", "history"
ANCHOR = "scripted:medium"  # the rating of this agent, or else of the first one, stays at 1500


def check_start(config: TrainConfig) -> None:
    """Refuse a policy for a first slot whose run or card says that its network is another one; nothing is loaded.

    Raises:
        LeagueError: naming the policy and the field.
    """
    for name in config.league_start.split():
        try:
            fields = network_fields(Path(name))
        except CheckpointError:
            continue  # an export says it in its weights, and what is no policy is refused where it is read
        for field, theirs in fields.items():
            ours = getattr(config, field)
            if theirs != ours:
                raise LeagueError(
                    f"league_start must name policies of this run's network, and {name} has {field} = {theirs!r} where this run "
                    f"has {ours!r}"
                )


class RunLeague:
    """The league of one run; follows `runs.companion.Companion`.

    Args:
        run_dir: the directory of the run.
        config, env_config: validated configurations of the run.

    Raises:
        LeagueError: the run's league cannot be read, and is left as it is; or a policy of a first slot has another network.
        ValueError: an agent of the league that cannot be made.
    """

    def __init__(self, run_dir: Path, config: TrainConfig, env_config: EnvConfig) -> None:
        self.folder = run_dir / FOLDER
        self.config, self.env_config = config, env_config
        for name in config.league_names:
            make_agent(name, env_config)
        if storage.exists(self.folder):
            storage.read(self.folder)  # refused before anything is made
        else:
            check_start(config)
        self.slots: list[str | None] = [None] * config.league_slots  # ids of the entries
        self.waiting: tuple[int, str] | None = None  # slot and id
        self.last: str | None = None  # id of the last submission
        self.told: dict[str, float | None] = dict.fromkeys(
            ("league/rating", "league/rating_deviation", "league/entries", "league/commanders")
        )

    def begin(self, trainer: Train, state: TrainState, remembered: dict[str, Any] | None) -> TrainState:
        """Make the league of a new run, or take it back to where a checkpoint left it."""
        self.network: Network = trainer.network
        self.agents = trainer.members[1 + self.config.league_slots :]
        self.update = update = int(state.update)
        self.league = League.create(self.folder, self.env_config)
        with storage.locked(self.folder):
            storage.write(self.folder, self._known(update, self.league.read()))
        for name in sorted(self.agents, key=lambda name: name != ANCHOR):
            first = not self.league.read().entries
            self.league.add(name, role="anchor" if first else "candidate")
        if update == 0:
            state = self._fill(state)
        if remembered is not None:
            self.slots, self.last = list(remembered["slots"]), remembered["last"]
            self.waiting = None if remembered["waiting"] is None else tuple(remembered["waiting"])
            self.told = dict(remembered["told"])
        return state

    def after_call(self, state: TrainState) -> TrainState:
        """Submit the policy if it is time."""
        self.update += self.config.updates_per_call  # not read from the state, which may still be computed
        update = self.update
        due = update % self.config.league_every == 0 or update >= self.config.updates
        if not due or state.league is None:
            return state
        data = self._submit(update, state)
        league = self._offer(data, state, on_device.take_window(state.league))
        self._keep(update)
        return state.replace(league=league)  # type: ignore[attr-defined, no-any-return]

    def metrics(self) -> dict[str, float | None]:
        """Return the rating of the last submission and the size of the league; None before the first one."""
        return dict(self.told)

    def remember(self) -> dict[str, Any]:
        """Return who sits in the slots, and the last numbers."""
        return {"slots": self.slots, "waiting": self.waiting, "last": self.last, "told": self.told}

    # -- Inside -----------------------------------------------------------------------------------------------------------

    def _fill(self, state: TrainState) -> TrainState:
        """Put the policies that the configuration names into the first slots."""
        league = state.league
        assert league is not None
        for slot, name in enumerate(self.config.league_start.split()):
            entry = self.league.add(name)
            policy = self.league.policy(entry)
            if policy.network != self.network:
                raise LeagueError(
                    f"league_start must name policies of this run's network ({self.config.network}, hidden {self.config.hidden}, "
                    f"lstm {self.config.lstm}, memory {self.config.memory}), {name} has another one"
                )
            self.slots[slot] = entry.id
            league = on_device.fill(league, slot, policy.params, policy.observation_moments)
        return state.replace(league=league)  # type: ignore[attr-defined, no-any-return]

    def _submit(self, update: int, state: TrainState) -> LeagueData:
        """Add the learner to the league, rate its games since the last time, and return the league after that."""
        league = state.league
        assert league is not None
        if self.waiting is not None and int(league.waiting_for) == on_device.NOBODY:
            slot, self.slots[slot], self.waiting = self.waiting[0], self.waiting[1], None
        params, moments = jax.tree.map(np.asarray, (state.playing, state.observation_moments))
        policy = Policy(self.network, params, moments, self.config, self.env_config, update, {})
        entry = self.league.add_policy(policy, f"update {update}", parent=self.last, origin={"from": "this run"})
        window = np.asarray(league.window).round().astype(int)
        self.league.record(list(self._pairings(entry, window)))
        data = self.league.rate_jointly()
        self.last = entry.id
        found = {e.id: e for e in data.entries}[entry.id]
        self.told |= {
            "league/rating": found.rating,
            "league/rating_deviation": found.deviation,
            "league/entries": float(len(data.entries)),
            "league/commanders": float(sum(e.role == "commander" for e in data.entries)),
        }
        return data

    def _pairings(self, entry: Entry, window: np.ndarray) -> list[Pairing]:
        """The learner's games against everybody but itself."""
        rows = []
        for who, (games, wins, draws) in zip([None, *self.slots, *self.agents], window, strict=True):
            if who is not None and who != entry.id and games:
                rows.append(Pairing(entry.id, who, int(wins), int(draws), int(games - wins - draws)))
        return rows

    def _offer(self, data: LeagueData, state: TrainState, league: LeagueState) -> LeagueState:
        """Write the ratings, and let the learner wait for a slot unless another policy still does."""
        ratings = {e.id: e.rating for e in data.entries}
        known = [self.last, *self.slots, *self.agents]
        told = [on_device.FIRST_RATING if who is None else ratings[who] for who in known]
        league = league.replace(ratings=jnp.array(told, jnp.float32))  # type: ignore[attr-defined]
        slot = self._slot(data, np.asarray(scores(league.counts)))
        if self.waiting is not None or slot is None or self.last in self.slots:
            return league
        assert self.last is not None
        self.waiting = slot, self.last
        return on_device.offer(league, slot, state.playing, state.observation_moments, ratings[self.last])

    def _slot(self, data: LeagueData, score: np.ndarray) -> int | None:
        """The slot for the next policy; None if all must stay."""
        empty = [i for i, who in enumerate(self.slots) if who is None]
        if empty:
            return empty[0]
        retired = {e.id for e in data.entries if e.role == "retired"}
        free = range(1 if self.config.league_keep_first else 0, len(self.slots))
        return max(free, key=lambda i: (self.slots[i] in retired, score[1 + i]), default=None)

    def _keep(self, update: int) -> None:
        """Keep the league's file as it is after this submission."""
        history = self.folder / HISTORY
        try:
            history.mkdir(exist_ok=True)
            shutil.copyfile(self.folder / storage.FILE, history / f"{update:08d}.json")
        except OSError as error:
            raise LeagueError(f"cannot write to {history}: {error.strerror or error}") from error

    def _known(self, update: int, now: LeagueData) -> LeagueData:
        """The league as a run that has done so many updates knows it."""
        past = [p for p in sorted((self.folder / HISTORY).glob("*.json")) if int(p.stem) <= update]
        if past:
            return storage.read_file(past[-1])
        return dataclasses.replace(now, entries=(), results=(), periods=0)
