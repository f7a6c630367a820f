"""Adaptors: the game behind the interfaces of other libraries (docs/adaptors.md)."""
