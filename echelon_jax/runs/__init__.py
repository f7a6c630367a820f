"""The host's side of a run: runner, checkpoints, metrics, sinks and locks."""
