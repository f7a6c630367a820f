"""The host's side of a run: runner, checkpoints, migrations, metrics, sinks and locks."""
