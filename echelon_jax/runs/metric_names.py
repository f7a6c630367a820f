"""The meaning of every metric of a run, by name; `*` stands for one part of a name.

`python -m echelon_jax.runs.metric_names > docs/metrics.md` makes the page.
"""

from __future__ import annotations

import re
import sys

from echelon_jax.markdown import table

MEANINGS: dict[str, dict[str, str]] = {
    "Progress, speed and memory": {
        "update": "updates done; the axis of all curves",
        "env_steps": "decisions of whole arenas since the run began",
        "env_steps_per_second": "over the time between the ends of two calls, which includes saving and reporting",
        "env_steps_per_cpu_second": "the same per second of processor time of all threads together",
        "seconds/call": "wall time between the ends of two calls",
        "seconds/compile": "time to compile the training program, or to load it from the compilation cache",
        "seconds/rollout": "time of one rollout alone, measured once before training with `--time-parts`; null without that flag, "
        "because a call is one fused program",
        "seconds/update": "time of one update without its rollout: `seconds/call` per update minus `seconds/rollout`",
        "memory/host_mb": "memory of the process, MiB; null on Windows",
        "memory/device_mb": "largest memory of the device so far, MiB; null on the CPU, which does not report it",
    },
    "The game, over episodes that ended in the call": {
        "episodes": "number of episodes that ended",
        "win_rate": "share of them that the learner won",
        "loss_rate": "share of them that the learner lost",
        "draw_rate": "share of draws",
        "win_rate/as_*": "win rate of the arenas in which the learner is blue or red",
        "win_rate/against_*": "win rate against the opponent of that name; in a league `current`, `slot1` to `slotK`, agents",
        "episodes/against_*": "number of them against that member of a league",
        "ended_by/*": "share of them that ended in this way",
        "episode_length": "mean number of decisions",
        "return_per_mech": "sum of rewards of a mech of the learner over an episode, mean over mechs",
        "zone_share": "learner's share of all zone seconds",
        "deaths_per_episode": "learner's mechs that died",
        "per_episode/*_learner": "the game's counters of the learner's team: kills, assists, paints, hits of lasers and flamers, "
        "missiles launched, gauss and autocannon shots, intercepts, damage, knockdowns, legged, shutdowns, and actions and "
        "observations that were not finite (must be 0)",
        "per_episode/*_opponent": "the same for the other team",
        "lost_shots_per_episode": "shots that found no slot in the simulator; must be 0",
        "lost_clouds_per_episode": "smoke clouds that replaced a living one; must be 0",
    },
    "The game, over all decisions of living mechs of the learner": {
        "reward_per_decision": "mean reward",
        "reward_per_decision/*": "the same by component of the reward",
        "in_zone": "share of decisions that end in the zone",
        "class/*/reward_per_decision": "mean reward of mechs of a class",
        "class/*/reward_per_decision/*": "the same by component of the reward",
        "class/*/in_zone": "share of decisions of mechs of a class that end in the zone",
        "class/*/deaths_per_episode": "deaths of mechs of a class per ended episode",
    },
    "The update: means over its gradient steps": {
        "update/loss": "the loss that is differentiated",
        "update/policy_loss": "clipped surrogate loss, summed over the heads",
        "update/value_loss": "squared error of the critic in its own units",
        "update/entropy": "entropy, weighted sum over the heads",
        "update/kl": "KL divergence from the old policy: mean of (ratio - 1) - log ratio, summed over the heads",
        "update/clip_fraction": "share of ratios beyond the clip",
        "update/ratio_error": "largest |ratio - 1| of living mechs in a minibatch",
        "update/explained_variance": "share of the variance of the critic's targets that the critic explained before the update",
        "update/head_entropy/*": "entropy of a head",
        "update/head_kl/*": "KL of a head",
        "update/head_clip_fraction/*": "clip fraction of a head",
        "update/grad_norm": "global norm of the gradient before clipping",
        "update/grad_norm/*": "the same of a part of the network, by its layer; the squares add up to that of the whole",
        "update/grad_norm/head/*": "the same of the part of the last layer that makes a head's outputs (modern network)",
        "update/dead_units/*": "share of a ReLU layer's units that are 0 for every living mech in four decisions of the last "
        "rollout (modern network)",
        "update/update_ratio": "norm of the parameter step divided by the norm of the parameters",
        "update/skipped": "share of gradient steps left out because something was not finite",
        "update/imitation": "with a teacher: minus the log-prob of its actions, summed over the heads",
        "update/stopped": "share of gradient steps left out because the KL was too large",
    },
    "Validation (docs/evaluation.md); null in the lines of updates without one, absent in runs without any": {
        "validation/score": "mean score over opponents: win 1, draw 1/2, loss 0; the best checkpoint has the highest",
        "validation/win_rate": "mean win rate over opponents",
        "validation/win_rate/against_*": "win rate against the opponent of that name",
        "validation/zone_share/against_*": "the policy's share of all zone seconds against it",
        "validation/return/against_*": "mean sum of rewards of a mech of the policy over a game against it",
        "seconds/validation": "wall time of the games; `seconds/call` of that call includes it",
    },
    "The league (docs/selfplay.md), only with `--opponent league`; null before the first submission": {
        "league/rating": "rating of the policy that was submitted last",
        "league/rating_deviation": "its deviation",
        "league/entries": "entries of the run's league",
        "league/commanders": "commanders among them",
    },
    "The guard (docs/reliability.md)": {
        "guard/dropped": "updates of the call that were not applied",
        "guard/rollbacks": "rollbacks of the learner to the last snapshot in the call",
        "guard/rate": "factor of the learning rate after the call; below 1 after a rollback",
    },
    "The learner after the call": {
        "fire_probability": "probability with which the scripted opponent fires, read from the compiled state",
        "value_mean": "mean value of the critic over the rollout, in units of reward",
        "return_deviation": "running deviation of the returns, which is the unit of the critic",
    },
}
PATTERNS = {name: text for section in MEANINGS.values() for name, text in section.items()}


def patterns_of(name: str) -> list[str]:
    """Return the patterns that a metric's name fits; one, unless the page is incomplete."""
    if name in PATTERNS:
        return [name]
    return [p for p in PATTERNS if "*" in p and re.fullmatch(re.escape(p).replace(r"\*", "[^/]+"), name)]


def page() -> str:
    """The text of docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "`RUN/metrics.jsonl` has one line per call. `RUN/tensorboard/` has the same numbers, and so has Weights & Biases "
        "with `--wandb PROJECT`.",
        "The device adds up. Every rate is a quotient of two sums, and null if there is nothing to divide by.",
        "The metrics of a call are fetched as one small transfer while the next call runs. `*` stands for a part of a name.",
        "This page is made by `python -m echelon_jax.runs.metric_names`.",
    ]
    for section, names in MEANINGS.items():
        lines += ["", f"## {section}", "", table(["name", "meaning"], [[f"`{name}`", names[name]] for name in names])]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
