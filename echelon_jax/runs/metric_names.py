"""What every metric of a run means, by name; `*` stands for one part of a name. The page is made by

python -m echelon_jax.runs.metric_names > docs/metrics.md
"""

from __future__ import annotations

import re
import sys

from echelon_jax.markdown import table

MEANINGS: dict[str, dict[str, str]] = {
    "Where the run is, how fast, how large": {
        "update": "updates done; the axis",
        "env_steps": "decisions of whole arenas since the run began",
        "env_steps_per_second": "over the call, from the end of the one before: saving and reporting are in it",
        "env_steps_per_cpu_second": "the same per second of processor time, all threads together",
        "seconds/call": "wall time of the call, as above",
        "seconds/compile": "of the training program, or of loading it from the compilation cache",
        "seconds/rollout": "of one rollout alone, measured once before training with `--time-parts`; without that not measured, "
        "since a call is one fused program",
        "seconds/update": "of one update without its rollout: the call per update less `seconds/rollout`; with `--time-parts`",
        "memory/host_mb": "memory of the process, MiB",
        "memory/device_mb": "most that the device has held, MiB; none on the CPU, which does not tell",
    },
    "The game, over episodes that ended in the launch": {
        "episodes": "how many ended",
        "win_rate": "share that the learner won",
        "loss_rate": "share that it lost",
        "draw_rate": "share of draws",
        "win_rate/as_*": "win rate of the arenas in which the learner is blue or red",
        "win_rate/against_*": "win rate against the opponent of that name",
        "ended_by/*": "share by how they ended",
        "episode_length": "decisions",
        "return_per_mech": "reward of a mech of the learner from first to last decision, mean over mechs",
        "zone_share": "learner's share of all zone seconds",
        "deaths_per_episode": "learner's mechs that died",
        "per_episode/*_learner": "the game's counters of the learner's team: kills, assists, paints, hits of lasers and flamers, "
        "missiles launched, gauss and autocannon shots, intercepts, damage, knockdowns, legged, shutdowns, and actions and "
        "observations that were not finite (must be 0)",
        "per_episode/*_opponent": "the same of the other team",
        "lost_shots_per_episode": "shots that found no slot in the simulator; must be 0",
        "lost_clouds_per_episode": "smoke clouds that replaced a living one; must be 0",
    },
    "The game, over all decisions of living mechs of the learner": {
        "reward_per_decision": "mean reward",
        "reward_per_decision/*": "by component of the reward",
        "in_zone": "share of decisions that end in the zone",
        "class/*/reward_per_decision": "mean reward of mechs of a class",
        "class/*/reward_per_decision/*": "by component",
        "class/*/in_zone": "share in the zone",
        "class/*/deaths_per_episode": "deaths of mechs of the class over episodes that ended",
    },
    "The update, means over its gradient steps": {
        "update/loss": "the loss that is differentiated",
        "update/policy_loss": "clipped surrogate, summed over the heads",
        "update/value_loss": "squared error of the critic in its own units",
        "update/entropy": "weighted sum over the heads",
        "update/kl": "mean of (ratio - 1) - log ratio, summed over the heads",
        "update/clip_fraction": "share of ratios beyond the clip",
        "update/ratio_error": "largest |ratio - 1| of living mechs in a minibatch",
        "update/explained_variance": "of the critic's targets, by the critic before the update",
        "update/head_entropy/*": "entropy of a head",
        "update/head_kl/*": "KL of a head",
        "update/head_clip_fraction/*": "clip fraction of a head",
        "update/grad_norm": "global norm of the gradient before it is cut",
        "update/update_ratio": "norm of the step over the norm of the parameters",
        "update/skipped": "share of gradient steps left out because something was not finite",
        "update/stopped": "share of gradient steps left out because the KL was too large",
    },
    "The guard (docs/reliability.md)": {
        "guard/dropped": "updates of the call that were not applied",
        "guard/rollbacks": "times in the call that the learner was rolled back to the last snapshot",
        "guard/rate": "factor of the learning rate after the call; below 1 after a rollback",
    },
    "State of the learner after the launch": {
        "fire_probability": "with which the scripted opponent fires, read from what it played with",
        "value_mean": "of the critic over the rollout, in units of reward",
        "return_deviation": "of the returns: the unit in which the critic learns",
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
        "One line per call in `RUN/metrics.jsonl`, the same in `RUN/tensorboard/`, with `--wandb PROJECT` also there.",
        "The device adds up; every rate is a quotient of two sums, and null where there is nothing to divide by.",
        "A call is fetched, as one small transfer, while the next one runs. `*` stands for a part of a name.",
        "This page is made by `python -m echelon_jax.runs.metric_names`.",
    ]
    for section, names in MEANINGS.items():
        lines += ["", f"## {section}", "", table(["name", "meaning"], [[f"`{name}`", names[name]] for name in names])]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
