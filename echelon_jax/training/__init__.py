"""The compiled program: rollout, advantages, PPO update, normalisers, schedules and the guard."""
