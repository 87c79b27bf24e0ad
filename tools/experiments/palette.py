"""Colours of keys, the same in the terminal and on pages. Neighbours differ, on dark and on light backgrounds."""

from __future__ import annotations

import colorsys
from typing import Final

_FEW: Final = ("#2f7ed8", "#e8912d", "#2ca58d", "#c0509f", "#8a6fd1", "#7f8c2b")
_GOLDEN_ANGLE: Final = 0.381966
"""The step between two hues, as a share of a turn. Successive hues lie far apart, however many there are."""


def key_colour(key: int, keys: int) -> str:
    """Return the colour of one of `keys` keys, as #rrggbb."""
    if keys <= len(_FEW):
        return _FEW[key]
    red, green, blue = colorsys.hls_to_rgb(key * _GOLDEN_ANGLE % 1.0, 0.45 + 0.15 * (key % 3) / 2, 0.6)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
