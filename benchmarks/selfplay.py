"""What a league of K policies costs beside one: `python benchmarks/selfplay.py`; the figures are in docs/selfplay.md.

CPU and wall time of a decision of all opponents, alternatives in turns in one process, the best of several rounds:

one             one policy for all arenas
passes          every policy for all arenas, and the right one is kept
per arena       the parameters of each arena are gathered
side by side N  arenas in blocks of N by their policy, all blocks at once, as on a GPU (`training/league/blocks.py`)
in turn N       the same blocks, one after the other, as on a CPU

With `--whole` whole updates of training are timed instead: rollout, opponents and gradient steps, in a league of one frozen
policy and in one of K, at the sizes of the preset `cpu` (or `--arenas`, `--width`).
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from typing import Any

import tyro

from echelon_jax.config import EnvConfig
from echelon_jax.jax_setup import set_up_jax

DECISIONS = 16  # of one timed call


@dataclasses.dataclass(frozen=True)
class SelfPlay:
    """Time the alternatives."""

    arenas: int = 64
    """Arenas side by side."""
    width: int = 64
    """Of encoder and LSTM."""
    policies: int = 8
    """Frozen policies."""
    blocks: tuple[int, ...] = (2, 4, 8)
    """Sizes of blocks to try."""
    rounds: int = 6
    """Timed rounds; the best counts."""
    whole: bool = False
    """Time whole updates of training."""

    def run(self) -> None:
        set_up_jax(1)
        if self.whole:
            self.run_whole()
        else:
            self.run_decisions()

    def run_whole(self) -> None:
        import jax

        from echelon_jax import AutoReset, Echelon, generate_worlds
        from echelon_jax.policies.normalize import empty_moments
        from echelon_jax.training.config import TrainConfig
        from echelon_jax.training.league.state import fill
        from echelon_jax.training.trainer import make_train

        game = EnvConfig(size_x=40, size_y=40)
        env = Echelon(game)
        params = env.params(env.make_bank(generate_worlds(game, range(16))))
        league: dict[str, Any] = {
            "opponent": "league",
            "league_agents": "",
            "league_current": 0.0,
            "league_uniform": 1.0,
        }
        sizes: dict[str, Any] = {"arenas": self.arenas, "hidden": self.width, "lstm": self.width, "devices": 1}
        calls: dict[int, Callable[[Any], Any]] = {}
        states: dict[int, Any] = {}
        for slots in (1, self.policies):
            train = make_train(AutoReset(env), TrainConfig.cpu(**sizes, **league, league_slots=slots, teacher=""))
            state = train.init(jax.random.key(0), params)
            for slot in range(slots):
                policy = train.network.init(jax.random.key(slot))
                filled = fill(state.league, slot, policy, empty_moments(train.features.own_size))
                state = state.replace(league=filled)
            calls[slots] = lambda state, train=train: train.run_updates(state, params)[0]
            states[slots] = calls[slots](state)  # compiles
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(self.rounds):
            for slots, call in calls.items():
                jax.block_until_ready(states[slots])
                start = time.process_time()
                states[slots] = jax.block_until_ready(call(states[slots]))
                best[slots] = min(best[slots], time.process_time() - start)
        for slots, seconds in best.items():
            row = {"policies": slots, "CPU s an update": round(seconds, 3), "of one": round(seconds / best[1], 3)}
            print(json.dumps(row), flush=True)

    def run_decisions(self) -> None:
        import jax
        import jax.numpy as jnp

        from echelon_jax.env.interfaces import observation_layout
        from echelon_jax.policies.acting import decide
        from echelon_jax.policies.normalize import empty_moments
        from echelon_jax.policies.registry import make_network
        from echelon_jax.training.config import TrainConfig
        from echelon_jax.training.league.blocks import block_size, into_blocks, run_blocks

        game, count = EnvConfig(size_x=40, size_y=40), self.policies
        network = make_network(TrainConfig(hidden=self.width, lstm=self.width), game)
        stack: Any = (
            jax.vmap(network.init)(jax.random.split(jax.random.key(0), count)),
            jax.tree.map(lambda x: jnp.repeat(x[None], count, 0), empty_moments(network.features.own_size)),
        )
        rows = self.arenas, game.team_size
        # Every decision has observations of its own: nothing of it can be computed once for all.
        shown = jax.random.uniform(jax.random.key(1), (DECISIONS, *rows, observation_layout(game).size))
        draws = jax.random.split(jax.random.key(2), (DECISIONS, self.arenas))
        group = jax.random.randint(jax.random.key(3), (self.arenas,), 0, count)
        never = jnp.zeros((1, game.team_size), bool)

        def arena(policy: Any, carry: Any, seen: Any, key: Any) -> Any:
            before = jax.tree.map(lambda x: x[None], carry)
            action, after, _ = decide(network, None, False, *policy, before, seen[None], never, key)
            return jax.tree.map(lambda x: x[0], after), action[0]

        def alone(policy: Any, *inputs: Any) -> Any:
            return jax.vmap(arena, (None, 0, 0, 0))(policy, *inputs)

        def one(stack: Any, group: Any, *inputs: Any) -> Any:
            return alone(jax.tree.map(lambda x: x[0], stack), *inputs)

        def passes(stack: Any, group: Any, *inputs: Any) -> Any:
            out = [alone(jax.tree.map(lambda x: x[i], stack), *inputs) for i in range(count)]  # noqa: B023
            return jax.tree.map(lambda *x: jnp.stack(x)[group, jnp.arange(self.arenas)], *out)

        def blocks(size: int, in_turn: bool) -> Callable[..., Any]:
            def act(stack: Any, group: Any, carry: Any, *others: Any) -> Any:
                found = into_blocks(group, count, size)
                inputs = jax.tree.map(found.gather, (carry, *others))
                after, actions = run_blocks(lambda own, block: alone(own, *block), stack, found, inputs, in_turn)
                nothing = jnp.zeros((self.arenas, *actions.shape[2:]))
                return jax.tree.map(found.scatter, after, carry), found.scatter(actions, nothing)

            return act

        def timed(act: Callable[..., Any]) -> Any:
            def decisions(stack: Any, carry: Any, group: Any, shown: Any, draws: Any) -> Any:
                def step(carry: Any, of_decision: Any) -> Any:
                    i, seen, keys = of_decision
                    carry, actions = act(stack, (group + i) % count, carry, seen, keys)
                    return carry, actions.sum()

                return jax.lax.scan(step, carry, (jnp.arange(DECISIONS), shown, draws))

            return jax.jit(decisions).lower(stack, carry, group, shown, draws).compile()

        carry = network.initial_carry(*rows)
        usual = block_size(self.arenas, count)
        tried = sorted({*self.blocks, usual})
        sizes = {f"{way} {n}": blocks(n, way == "in turn") for way in ("side by side", "in turn") for n in tried}
        ways = {"one": one, "passes": passes, "per arena": blocks(1, False), **sizes}
        compiled = {name: timed(act) for name, act in ways.items()}
        best, wall = (dict.fromkeys(ways, float("inf")) for _ in range(2))
        for _ in range(self.rounds):
            for name, call in compiled.items():
                start, began = time.process_time(), time.perf_counter()
                jax.block_until_ready(call(stack, carry, group, shown, draws))
                best[name] = min(best[name], (time.process_time() - start) / DECISIONS)
                wall[name] = min(wall[name], (time.perf_counter() - began) / DECISIONS)
        for name, seconds in best.items():
            row = {"way": name, "ms": round(1e3 * seconds, 3), "of one": round(seconds / best["one"], 2)}
            row |= {"wall ms": round(1e3 * wall[name], 3), "wall of one": round(wall[name] / wall["one"], 2)}
            print(json.dumps(row | {"usual": name.endswith(f" {usual}")}), flush=True)


if __name__ == "__main__":
    tyro.cli(SelfPlay).run()
