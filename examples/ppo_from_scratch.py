"""PPO of one's own on the bare environment: both sides play with one feed-forward network (self-play).

    python examples/ppo_from_scratch.py
    python examples/ppo_from_scratch.py --name 5v5-40 --rules revised --arenas 64 --steps 64 --updates 200

Nothing of this package's learner is used. Rollout and update are one compiled function.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

import echelon_jax
from echelon_jax.env.interfaces import reward_of

GAMMA, LAMBDA, CLIP, ENTROPY = 0.99, 0.95, 0.2, 0.001
EPOCHS, MINIBATCHES, LEARNING_RATE = 4, 4, 3e-4


class ActorCritic(nn.Module):
    """Two dense layers; the mean of a Gaussian and the value on top."""

    action_size: int

    @nn.compact
    def __call__(self, observation: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return mean and log standard deviation of the action, and the value."""
        x = nn.LayerNorm()(observation)
        x = nn.tanh(nn.Dense(64)(x))
        x = nn.tanh(nn.Dense(64)(x))
        mean = nn.Dense(self.action_size, kernel_init=nn.initializers.orthogonal(0.01))(x)
        log_std = self.param("log_std", nn.initializers.constant(-0.5), (self.action_size,))
        return mean, log_std, nn.Dense(1)(x)[..., 0]


class Decision(NamedTuple):
    """What a rollout keeps of a decision; everything is [steps, arenas, mechs, ...]."""

    observation: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    alive: jax.Array  # at the decision; the dead do not learn
    reward: jax.Array
    terminated: jax.Array  # nothing comes after this for the mech
    over: jax.Array  # the episode ended, so the next row is another episode
    next_value: jax.Array  # of what the decision led to, before any reset


def log_prob_of(mean: jax.Array, log_std: jax.Array, action: jax.Array) -> jax.Array:
    """Return the log-prob of an action; the environment clips actions to [-1, 1] afterwards."""
    z = (action - mean) / jnp.exp(log_std)
    return (-0.5 * z**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)).sum(-1)


def mean_of(x: jax.Array, mask: jax.Array) -> jax.Array:
    """Return the mean of x where the mask is true."""
    return jnp.where(mask, x, 0.0).sum() / jnp.maximum(mask.sum(), 1)


def make_update(env: echelon_jax.AutoReset, model: ActorCritic, optimizer: Any, steps: int) -> Any:
    """Return (params, optimizer state, environment state, step, env params, key) -> the same after an update, and metrics."""

    # Such a reward pays the game's result when time is up, too; then no value is added behind that end.
    paid_at_time_up = reward_of(env.config).pays_at_time_up

    def rollout(params: Any, state: Any, step: Any, env_params: Any, key: jax.Array) -> Any:
        def decide(now: Any, key: jax.Array) -> tuple[Any, Decision]:
            state, step = now
            draw_key, env_key = jax.random.split(key)
            mean, log_std, value = model.apply(params, step.observation)
            action = mean + jnp.exp(log_std) * jax.random.normal(draw_key, mean.shape)
            # Where the last step ended an episode, its info is that of the episode before: then everybody lives.
            alive = step.info.alive | step.episode_over[:, None]
            keys = jax.random.split(env_key, value.shape[0])
            state, after = env.step_batch(keys, state, action, env_params)
            next_value = model.apply(params, after.final_observation)[2]
            over = jnp.broadcast_to(after.episode_over[:, None], alive.shape)
            made = Decision(
                observation=step.observation,
                action=action,
                log_prob=log_prob_of(mean, log_std, action),
                value=value,
                alive=alive,
                reward=after.reward,
                terminated=after.terminated | (after.truncated & paid_at_time_up),
                over=over,
                next_value=next_value,
            )
            return (state, after), made

        return jax.lax.scan(decide, (state, step), jax.random.split(key, steps))

    def advantages(made: Decision) -> jax.Array:
        def back(later: jax.Array, now: Decision) -> tuple[jax.Array, jax.Array]:
            goes_on = 1.0 - now.terminated  # a truncated episode still has a value behind it
            error = now.reward + GAMMA * goes_on * now.next_value - now.value
            advantage = error + GAMMA * LAMBDA * goes_on * (1.0 - now.over) * later
            return advantage, advantage

        return jax.lax.scan(back, jnp.zeros_like(made.value[0]), made, reverse=True)[1]

    def loss(params: Any, made: Decision, advantage: jax.Array, target: jax.Array) -> jax.Array:
        mean, log_std, value = model.apply(params, made.observation)
        ratio = jnp.exp(log_prob_of(mean, log_std, made.action) - made.log_prob)
        surrogate = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage)
        entropy = log_std.sum()  # of a Gaussian, up to a constant
        return -mean_of(surrogate, made.alive) + 0.5 * mean_of((value - target) ** 2, made.alive) - ENTROPY * entropy

    def update(params: Any, opt_state: Any, state: Any, step: Any, env_params: Any, key: jax.Array) -> Any:
        rollout_key, order_key = jax.random.split(key)
        (state, step), made = rollout(params, state, step, env_params, rollout_key)
        advantage = advantages(made)
        target = advantage + made.value
        centre = mean_of(advantage, made.alive)
        spread = jnp.sqrt(mean_of((advantage - centre) ** 2, made.alive))
        batch = made, (advantage - centre) / (spread + 1e-8), target
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[3:]), batch)  # one row per mech and decision
        rows = flat[1].shape[0]

        def minibatch(learner: Any, part: jax.Array) -> tuple[Any, jax.Array]:
            params, opt_state = learner
            value, gradient = jax.value_and_grad(loss)(params, *jax.tree.map(lambda x: x[part], flat))
            change, opt_state = optimizer.update(gradient, opt_state, params)
            return (optax.apply_updates(params, change), opt_state), value

        orders = jax.vmap(lambda k: jax.random.permutation(k, rows))(jax.random.split(order_key, EPOCHS))
        size = rows // MINIBATCHES
        parts = orders[:, : MINIBATCHES * size].reshape(EPOCHS * MINIBATCHES, size)
        (params, opt_state), losses = jax.lax.scan(minibatch, (params, opt_state), parts)
        metrics = {
            "loss": losses.mean(),
            "reward": mean_of(made.reward, made.alive),
            "episodes": made.over[..., 0].sum(),
        }
        return params, opt_state, state, step, metrics

    return jax.jit(update)


def main() -> None:
    """Train and print one line per update."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--name", default="5v5-28", help="environment, see echelon_jax.make")
    parser.add_argument("--rules", default="original")
    parser.add_argument("--arenas", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--updates", type=int, default=3)
    flags = parser.parse_args()

    env, env_params = echelon_jax.make(flags.name, rules=flags.rules, worlds=4)
    model = ActorCritic(env.action_space(env_params).shape[0])
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(LEARNING_RATE))
    init_key, reset_key, key = jax.random.split(jax.random.key(0), 3)
    params = model.init(init_key, jnp.zeros(env.observation_space(env_params).shape))
    opt_state = optimizer.init(params)
    state, step = env.reset_batch(jax.random.split(reset_key, flags.arenas), env_params)
    update = make_update(env, model, optimizer, flags.steps)
    for i in range(flags.updates):
        update_key = jax.random.fold_in(key, i)
        params, opt_state, state, step, metrics = update(params, opt_state, state, step, env_params, update_key)
        print(f"update {i + 1}: " + ", ".join(f"{name} {float(value):.4f}" for name, value in metrics.items()))


if __name__ == "__main__":
    main()
