"""Stalled readers, a thousand connections and few descriptors; `make torture` lets them stand there for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import crowd


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("descriptors", [0, crowd.FEW_DESCRIPTORS])
def test_a_crowd_does_not_disturb_those_who_mean_well(descriptors: int, tmp_path: Path) -> None:
    crowd.run(tmp_path, seconds=2, descriptors=descriptors)
