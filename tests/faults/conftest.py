"""The engines of the broker's own tests."""

from __future__ import annotations

from tests.broker.conftest import held_sync, open_at

__all__ = ["held_sync", "open_at"]
