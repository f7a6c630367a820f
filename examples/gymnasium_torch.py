"""PPO in PyTorch, in the manner of CleanRL, on the Gymnasium vector environment: one team against a chosen opponent.

    python examples/gymnasium_torch.py
    python examples/gymnasium_torch.py --opponent scripted:easy --envs 32 --steps 64 --updates 300

Nothing of this package's learner is used, and nothing here knows JAX. All mechs of the team share one network, and each is
paid its own reward. Needs torch and gymnasium.
"""

from __future__ import annotations

import argparse
import time

import gymnasium
import numpy as np
import torch
from torch import nn

import echelon_jax.compat.gymnasium  # noqa: F401  it registers Echelon-v1

GAMMA, LAMBDA, CLIP, ENTROPY = 0.99, 0.95, 0.2, 0.005
EPOCHS, MINIBATCHES, LEARNING_RATE = 4, 4, 5e-4


class ActorCritic(nn.Module):
    """Two dense layers for each mech; logits of its choices and its value on top."""

    def __init__(self, entries: int, choices: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.LayerNorm(entries), nn.Linear(entries, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh()
        )
        self.actor, self.critic = nn.Linear(128, choices), nn.Linear(128, 1)
        nn.init.orthogonal_(self.actor.weight, 0.01)
        nn.init.zeros_(self.actor.bias)

    def forward(self, observation: torch.Tensor) -> tuple[torch.distributions.Categorical, torch.Tensor]:
        """Return the distribution of the choice and the value, for each mech."""
        hidden = self.body(observation)
        return torch.distributions.Categorical(logits=self.actor(hidden)), self.critic(hidden)[..., 0]


def mean_of(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mean of x where the mask is true."""
    return (x * mask).sum() / mask.sum().clamp(min=1)


def rollout(envs: gymnasium.vector.VectorEnv, model: ActorCritic, now: dict, steps: int, played: list) -> dict:
    """Play so many decisions in all arenas; everything is [steps, arenas, mechs, ...]. `now` is what the arenas show."""
    names = ("observation", "action", "log_prob", "value", "next_value", "reward", "alive", "goes_on", "over")
    made: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    for _ in range(steps):
        with torch.no_grad():
            chosen, value = model(now["observation"])
            action = chosen.sample()
            log_prob = chosen.log_prob(action)
        seen, _, terminated, truncated, infos = envs.step(action.numpy())
        over = terminated | truncated
        last, alive = seen.copy(), infos["alive"].copy()
        for i in np.flatnonzero(over):  # what the episode that has just ended showed last
            last[i], alive[i] = infos["final_obs"][i], infos["final_info"]["alive"][i]
            played.append(infos["final_info"]["winner"][i] == "blue")
        with torch.no_grad():
            next_value = model(torch.from_numpy(last))[1]
        # The reward of Echelon-v1 pays the result when time is up, so there is no value behind any end of an episode.
        row = {
            "observation": now["observation"],
            "action": action,
            "log_prob": log_prob,
            "value": value,
            "next_value": next_value,
            "reward": torch.from_numpy(infos["mech_reward"]),
            "alive": now["alive"],
            "goes_on": torch.from_numpy(alive & ~over[:, None]).float(),
            "over": torch.from_numpy(np.broadcast_to(over[:, None], alive.shape).copy()).float(),
        }
        for name, tensor in row.items():
            made[name].append(tensor)
        now |= {"observation": torch.from_numpy(seen), "alive": torch.from_numpy(infos["alive"]).float()}
    return {name: torch.stack(rows) for name, rows in made.items()}


def advantages(made: dict) -> torch.Tensor:
    """Generalised advantage estimation; a mech's death and an episode's end cut it off."""
    result, later = torch.zeros_like(made["value"]), torch.zeros_like(made["value"][0])
    for t in reversed(range(len(result))):
        error = made["reward"][t] + GAMMA * made["goes_on"][t] * made["next_value"][t] - made["value"][t]
        later = error + GAMMA * LAMBDA * made["goes_on"][t] * later
        result[t] = later
    return result


def update(model: ActorCritic, optimizer: torch.optim.Optimizer, made: dict) -> float:
    """Take PPO's gradient steps; return the mean loss."""
    advantage = advantages(made)
    rows = made | {"advantage": advantage, "target": advantage + made["value"]}
    alive = made["alive"].bool()
    rows = {name: rows[name][alive] for name in ("observation", "action", "log_prob", "advantage", "target")}
    rows["advantage"] = (rows["advantage"] - rows["advantage"].mean()) / (rows["advantage"].std() + 1e-8)
    losses = []
    for _ in range(EPOCHS):
        for part in torch.randperm(len(rows["action"])).chunk(MINIBATCHES):
            batch = {name: tensor[part] for name, tensor in rows.items()}
            chosen, value = model(batch["observation"])
            ratio = (chosen.log_prob(batch["action"]) - batch["log_prob"]).exp()
            surrogate = torch.min(ratio * batch["advantage"], ratio.clamp(1 - CLIP, 1 + CLIP) * batch["advantage"])
            loss = -surrogate.mean() + 0.5 * (value - batch["target"]).pow(2).mean() - ENTROPY * chosen.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item())
    return float(np.mean(losses))


def main() -> None:
    """Train and print one line per update."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--opponent", default="random", help="see docs/opponents.md")
    parser.add_argument("--size", type=int, default=28, help="edge of the map")
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of an episode")
    flags = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    envs = gymnasium.make_vec(
        "Echelon-v1",
        num_envs=flags.envs,
        opponent=flags.opponent,
        discrete=True,
        size_x=flags.size,
        size_y=flags.size,
        max_episode_seconds=flags.seconds,
    )
    model = ActorCritic(envs.single_observation_space.shape[-1], int(envs.single_action_space.nvec[0]))
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, eps=1e-5)
    observation, infos = envs.reset(seed=0)
    now = {"observation": torch.from_numpy(observation), "alive": torch.from_numpy(infos["alive"]).float()}
    played: list[bool] = []
    begin = time.perf_counter()
    for i in range(flags.updates):
        made = rollout(envs, model, now, flags.steps, played)
        loss = update(model, optimizer, made)
        reward = mean_of(made["reward"], made["alive"]).item()
        rate = (i + 1) * flags.envs * flags.steps / (time.perf_counter() - begin)
        recent = played[-100:]
        wins = f"{100 * sum(recent) / len(recent):.0f} % of the last {len(recent)}" if recent else "no game has ended"
        print(f"update {i + 1}: loss {loss:.4f}, reward {reward:.4f}, wins {wins}, {rate:.0f} env-steps/s", flush=True)
    envs.close()


if __name__ == "__main__":
    main()
