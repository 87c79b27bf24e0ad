"""The lanes experiment's results in words."""

from __future__ import annotations

from collections.abc import Sequence

from logbroker.tools.experiments.lane_strip import StripMetrics


def conclusions(metrics: Sequence[StripMetrics]) -> list[str]:
    """Return a sentence for each strip: what it gained and what it cost."""
    return [_sentence(each, metrics) for each in metrics]


def _sentence(strip: StripMetrics, all_of_them: Sequence[StripMetrics]) -> str:
    single = next((each for each in all_of_them if each.ordering == "single"), strip)
    times = strip.records_per_second / single.records_per_second
    at_work = f"{strip.mean_busy_workers:.1f} of {strip.workers} workers at work on average"
    if strip.ordering == "none":
        order = (
            f"{strip.violations:,} records were finished after a later record of their key,"
            f" in {strip.violated_keys} of {strip.keys} keys"
            if strip.violations
            else "no record was finished after a later one of its key, but only by luck: nothing enforces the order"
        )
        return f"none: {times:.1f} times as fast as single; {at_work}; {order}."
    is_single = strip.ordering == "single"
    kept = (
        ("all records in order" if is_single else f"every {'second ' if strip.split_into else ''}key in order")
        if not strip.violations
        else f"{strip.violations:,} records OUT OF ORDER, which must not happen"
    )
    if is_single:
        return f"single: {kept}; {at_work}, because only one may work at a time."
    if strip.split_into:
        twins = [each for each in all_of_them if each.ordering == "key" and not each.split_into]
        unsplit = next((each for each in twins if each.hottest_key_share == strip.hottest_key_share), strip)
        gain = strip.records_per_second / unsplit.records_per_second
        return (
            f"{strip.name}: {kept}, {times:.1f} times as fast as single, and {gain:.1f} times as fast as the same hot"
            f" key unsplit; {at_work}, at most one per sub-lane."
        )
    hottest = f", and one key has {strip.hottest_key_share:.0%} of the records" if strip.hottest_key_share > 0.5 else ""
    return f"{strip.name}: {kept}, {times:.1f} times as fast as single; {at_work}, at most one per key{hottest}."
