"""What a GPU would run: programs compiled for one on a machine without it, read, counted and estimated (docs/gpu.md)."""
