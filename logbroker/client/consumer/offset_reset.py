"""Reset policies: where a consumer continues if it has no position or its position is not in the log."""

from __future__ import annotations

import datetime
import re
from time import time
from typing import Final, Literal

from logbroker.client.transport.offsets import When
from logbroker.errors import InvalidRequestError, quoted

OffsetReset = Literal["earliest", "latest", "none"] | str | datetime.timedelta
"""earliest, latest, none, or a duration back from now: a timedelta, or Kafka's by_duration: with ISO 8601, such as
by_duration:PT1H."""

Reset = Literal["earliest", "latest"] | datetime.timedelta
Policy = Reset | None
"""A checked OffsetReset. None means that the program decides."""

_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII | re.IGNORECASE,
)


def reset_policy(setting: OffsetReset, name: str) -> Policy:
    """Check a setting. `name` is its name in the InvalidRequestError."""
    match setting:
        case "earliest" | "latest":
            return setting
        case "none":
            return None
        case str() if setting.startswith(_BY_DURATION):
            return _duration(setting.removeprefix(_BY_DURATION), name)
        case datetime.timedelta() if setting >= datetime.timedelta():
            return setting
    raise InvalidRequestError(
        f"{name} takes earliest, latest, none, a timedelta of 0 or more, or by_duration: and an ISO 8601 duration, such"
        f" as by_duration:PT1H, not {quoted(setting)}"
    )


def given_resets(
    *, start: OffsetReset | None, on_out_of_range: OffsetReset | None, auto_offset_reset: OffsetReset | None
) -> tuple[OffsetReset, OffsetReset]:
    """Return `start` and `on_out_of_range`: each as given or, if it is None, from `auto_offset_reset` or by default.

    Raises InvalidRequestError for an invalid `auto_offset_reset`. The others are checked where they are used.
    """
    if auto_offset_reset is not None:
        reset_policy(auto_offset_reset, "auto_offset_reset")
    return (
        _first_given(start, auto_offset_reset, "earliest"),
        _first_given(on_out_of_range, auto_offset_reset, "error"),
    )


def _first_given(*settings: OffsetReset | None) -> OffsetReset:
    return next(setting for setting in settings if setting is not None)


def place_of(policy: Reset | datetime.datetime) -> When:
    """Return the position that a policy means at this moment."""
    if isinstance(policy, datetime.timedelta):
        return max(0, round(time() * 1000) - policy // datetime.timedelta(milliseconds=1))
    return policy


def _duration(text: str, name: str) -> datetime.timedelta:
    found = _DURATION.fullmatch(text)
    parts = {} if found is None else {unit: float(amount) for unit, amount in found.groupdict().items() if amount}
    if not parts:
        raise InvalidRequestError(
            f"{quoted(text)} in {name} is no duration; give days, hours, minutes and seconds in ISO 8601, such as PT1H,"
            " P7D or P1DT12H30M"
        )
    try:
        return datetime.timedelta(**parts)
    except OverflowError:
        raise InvalidRequestError(f"the duration {quoted(text)} in {name} is too long") from None
