"""A training run as a page: curves and the newest validation game, while it trains."""
