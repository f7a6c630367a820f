"""The game as tables: materials, mech classes, weapons and constants. Plain Python and numpy, shared by every layer."""
