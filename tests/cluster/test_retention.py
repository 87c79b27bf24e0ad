"""The times at which a gateway looks at what the cluster may delete soon."""

from __future__ import annotations

import pytest

from logbroker.broker.cluster_engine.log.retention import LOOK_SECONDS, look_seconds, margin_ms
from logbroker.config import DAY_MS


@pytest.mark.parametrize("retention_ms", [4_000, 60_000, 3_600_000, 7 * DAY_MS, 10_000 * DAY_MS])
def test_several_looks_fit_into_the_time_for_which_copies_are_made_early(retention_ms: int) -> None:
    assert look_seconds(retention_ms) * 1000 <= margin_ms(retention_ms) <= retention_ms / 4
    assert look_seconds(retention_ms) >= LOOK_SECONDS
