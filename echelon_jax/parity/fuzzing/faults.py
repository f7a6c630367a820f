"""Ten mistakes planted in the JAX simulator, one at a time: the quick fuzz must find each of them.

`python -m echelon_jax.parity.fuzzing.faults` prints a table of ten results and exits with 1 if one mistake goes
unnoticed. A mistake is in force only while the step is traced and its rules are made, so the reference, which shares the constants,
never has it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import jax

from echelon_jax.config import EnvConfig
from echelon_jax.env import environment, episode
from echelon_jax.fields import seed_argument
from echelon_jax.markdown import row, table
from echelon_jax.parity.fuzzing import fuzz
from echelon_jax.rules import constants
from echelon_jax.sim import explosions

STEPS = 1600  # of the quick fuzz


@dataclasses.dataclass(frozen=True)
class Fault:
    """One planted mistake: the rule, what is wrong, and a context in which the JAX side has it."""

    rule: str
    change: str
    planted: Callable[[], contextlib.AbstractContextManager[Any]]


def _constant(rule: str, owner: Any, name: str, wrong: float) -> Fault:
    return Fault(rule, f"{name} {getattr(owner, name)} -> {wrong}", lambda: mock.patch.object(owner, name, wrong))


def _splash_through_walls() -> contextlib.AbstractContextManager[Any]:
    walk = explosions.walk

    def clear(*args: Any, **options: Any) -> Any:
        ray = walk(*args, **options)
        return ray._replace(blocked=ray.blocked & False)

    return mock.patch.object(explosions, "walk", clear)


@contextlib.contextmanager
def _late_messages() -> Iterator[None]:
    """Messages arrive two decisions late: those of the step before stay in force."""
    chosen, heard = environment.actions_of, []

    class Noting:
        """The configured actions, with the messages that were in force at each decision noted."""

        def __init__(self, config: EnvConfig) -> None:
            self.actions = chosen(config)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.actions, name)

        def decide(self, config: EnvConfig, state: Any, clean: Any) -> Any:
            heard.append(state.messages)
            return self.actions.decide(config, state, clean)

    with (
        mock.patch.object(environment, "actions_of", Noting),
        mock.patch.object(environment, "broadcast", lambda config, layout, alive, clean: heard[-1]),
    ):
        yield


FAULTS = (
    _constant("rear arc", constants, "REAR_ARC_COSINE", 0.65),
    _constant("leg fraction", constants, "LEG_HEIGHT_FRACTION", 0.35),
    _constant("step-up", constants, "STEP_UP_HEIGHT", 1.0),
    Fault("splash occlusion", "walls do not shield", _splash_through_walls),
    _constant("AMS probability", constants, "AMS_PROBABILITY", 0.5),
    _constant("paint bonus", constants, "PAINT_BONUS", 0.11),
    _constant("suppression", constants, "SUPPRESSION_DURATION", 1.3),
    _constant("ECM radius", constants, "EWAR_RADIUS", 48.0),
    Fault("comm delay", "messages one decision later still", _late_messages),
    _constant("contested zone floor", episode, "CONTESTED_FLOOR", 0.2),
)


def faulty_step(config: EnvConfig, fault: Fault) -> fuzz.Stepper:
    """The compiled step of `config` with a planted mistake."""
    jax.clear_caches()
    with fault.planted():
        compiled, params = fuzz.compile_step(config), fuzz.default_params(config)
    return fuzz.stepper(config, compiled, params)


def main(argv: Sequence[str] | None = None) -> int:
    """Plant every mistake, print the table."""
    parser = argparse.ArgumentParser(description="Plant ten mistakes in the JAX simulator and look for each.")
    parser.add_argument("--steps", type=int, default=STEPS, help="random steps to search for each mistake")
    parser.add_argument("--seed", type=seed_argument, default=0, help="seed of the first case")
    parser.add_argument("--only", default="", help="only the rule of this name")
    args = parser.parse_args(argv)
    config = EnvConfig.original()
    missed = 0
    print(table(["rule", "planted mistake", "found after steps", "differs in", "seconds"], []))
    for fault in FAULTS:
        if args.only not in ("", fault.rule):
            continue
        began = time.monotonic()
        step = faulty_step(config, fault)
        seeds = range(args.seed, args.seed + args.steps)
        result = fuzz.run(config, seeds, step, nudges=fuzz.WIDTH, stop=lambda r: bool(r.unexplained))
        found = result.unexplained
        missed += not found
        where = (found[0].seed - args.seed + 1, ", ".join(found[0].fields[:4])) if found else ("not found", "")
        print(row(fault.rule, fault.change, *where, f"{time.monotonic() - began:.0f}"), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
