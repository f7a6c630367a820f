"""Checks for environments of one's own: `api_test` says what every variant must satisfy (docs/versions.md, docs/adaptors.md)."""

from __future__ import annotations

from echelon_jax.testing.api import api_faults, api_test
from echelon_jax.testing.fingerprint import fingerprint

__all__ = ["api_faults", "api_test", "fingerprint"]
