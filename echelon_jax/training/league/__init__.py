"""Self-play inside the compiled update: a league of opponents on the device (docs/selfplay.md)."""
