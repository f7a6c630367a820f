"""Agreement with recordings of the original game, one decision step at a time."""
