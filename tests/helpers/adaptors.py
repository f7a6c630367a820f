"""One small game for the tests of all adaptors, so that its programs are compiled once."""

# Twelve decisions on the smallest map with the original's rules, which compile fastest.
RULES = {"rules": "original", "size_x": 20, "size_y": 20, "size_z": 8, "max_episode_seconds": 3.0}
GAME = {"name": "5v5-28", "worlds": 2, **RULES}
TEAM = {**GAME, "opponent": "random"}
STEPS = 12
