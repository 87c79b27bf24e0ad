"""The page of the lanes experiment, for people who have never heard of the project."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from logbroker.tools.experiments import page
from logbroker.tools.experiments.lane_strip import Strip, StripMetrics
from logbroker.tools.experiments.lane_words import conclusions
from logbroker.tools.experiments.palette import key_colour

_STRIP_COLOURS: Final = ("#c0262c", "#5a6775", "#e8912d", "#1c7c4a", "#8a6fd1", "#2f7ed8")
_CLOSE_RECORDS: Final = 60
_CLOSE_WORKS: Final = 30
"""The width of a workers' picture, as a multiple of the work time of a record."""
_POINTS: Final = 200
_INTRODUCTION: Final = """
A queue holds {one.records:,} records, and {one.workers} workers share them. Every record has a key: it is about one
thing, such as one aircraft, and what happens to one thing must often be dealt with in the order in which it happened.
How much does that order cost, and who keeps it? Six queues were filled with the same records (real flights out of
New York) and drained side by side on one machine, each by {one.workers} processes that take {work_ms:g} ms for a
record. The queues differ only in their rule:
"""
_RULES: Final = (
    "none: any record to any worker.",
    "single: one record at a time, in order.",
    "key: one record of each key at a time, in order; several keys at the same time. Once with 4 keys, once with 100.",
    "hot key: one record of each key at a time, as before, but one key has {hot.hottest_key_share:.0%} of the records.",
    (
        "split into {split.split_into}: the same keys, but the lane of the hot key is split into {split.split_into}"
        " sub-lanes by a second key in a header. Order is kept within each second key."
    ),
)
_COLUMNS: Final = """
Out of order: records finished after a later record of the same key or, where the hot key is split, of the same second
key (none and single have 100 keys, too). Idle: the
share of the workers' time in which they had nothing to do. Waiting and finished: seconds from the sending of all
records, in one burst, until the work on a record began or ended; half of the records were faster than p50, 99 of 100
faster than p99.
"""
_SHARED: Final = """
Records finished, over time. All queues shared the processors: when one was done, the others went faster.
"""
_CLOSELY: Final = """
On the left records in the order in which they were sent, on the right in the order in which they were finished; one
line is one record, its colour is its key (in the split key, its second key). Lines that cross have changed places.
That is harmless between two keys. Thick red lines are records that were finished after a later one of their own
key: somebody would have seen the landing before the departure.
"""
_MOMENT: Final = """
Each row is a worker, each block a record that it works on, coloured by key (in the split key, by second key); white is
idle. In order per key, a colour is never in two rows at the same moment.
"""
_MEASURED: Final = """
Nothing is simulated: a real broker and real worker processes on one machine, and work that takes its time by sleeping
({one.work_ms_mean:.2f} ms on average in the first queue, for {work_ms:g} ms asked). The rest of a worker's time goes
into fetching records and telling the broker that they are done, which is synced to disk before the next record of a
key is handed out. To repeat it on your machine:
"""
_COMMAND: Final = (
    "logbroker experiment lanes --work-ms {work_ms:g} --records {one.records} --workers {one.workers} --html lanes.html"
)
_AXIS: Final = "#b6c0ca"
_WRONG: Final = "#e0262c"


def lanes_page(strips: Sequence[Strip], metrics: Sequence[StripMetrics], work_ms: float) -> str:
    """Return the page for drained strips and their metrics."""
    parts = [
        page.paragraph(_INTRODUCTION.format(one=metrics[0], work_ms=work_ms)),
        page.bullets(rule.format(hot=metrics[-2], split=metrics[-1]) for rule in _RULES),
        "<h2>What came out</h2>",
        page.bullets(conclusions(metrics)),
        _table(metrics),
        page.paragraph(_COLUMNS, "note"),
        "<h2>How fast the queues were drained</h2>",
        _progress(strips, metrics),
        page.paragraph(_SHARED, "note"),
        "<h2>In which order: a few records, looked at closely</h2>",
        page.paragraph(_CLOSELY),
        '<div class="pair">' + "".join(_order(*each) for each in zip(strips, metrics, strict=True)) + "</div>",
        "<h2>Who works: a moment in the middle</h2>",
        page.paragraph(_MOMENT),
        '<div class="pair">' + "".join(_work(*each, work_ms) for each in zip(strips, metrics, strict=True)) + "</div>",
        "<h2>How this was measured</h2>",
        page.paragraph(_MEASURED.format(one=metrics[0], work_ms=work_ms)),
        page.command(_COMMAND.format(one=metrics[0], work_ms=work_ms)),
    ]
    return page.page("What order costs: one queue, six rules", parts)


def _table(metrics: Sequence[StripMetrics]) -> str:
    head = ("rule", "records/s", "out of order", "workers idle", "waiting p50", "p99", "finished p50", "p99")
    return page.table(
        head,
        [
            (
                each.name,
                f"{each.records_per_second:,.0f}",
                (f"{each.violations:,}", "bad" if each.violations else "good"),
                f"{each.idle_share:.0%}",
                *(
                    f"{ms / 1e3:,.2f} s"
                    for ms in (each.wait_ms_p50, each.wait_ms_p99, each.finish_ms_p50, each.finish_ms_p99)
                ),
            )
            for each in metrics
        ],
    )


def _progress(strips: Sequence[Strip], metrics: Sequence[StripMetrics]) -> str:
    width, height, left, top = 860.0, 300.0, 60.0, 20.0
    wide, high = width - left - 110, height - top - 40
    longest = max(each.seconds for each in metrics)
    shapes = []
    for part in (0.0, 0.5, 1.0):
        y = top + high * (1 - part)
        shapes += [page.line(left, y, left + wide, y, "#e6eaee"), page.words(left - 8, y + 4, f"{part:.0%}", "end")]
    step_seconds = _round_step(longest)
    for number in range(int(longest / step_seconds) + 1):
        x = left + wide * number * step_seconds / longest
        shapes.append(page.words(x, top + high + 20, f"{number * step_seconds:g} s", "middle"))
    for strip, colour in zip(strips, _STRIP_COLOURS, strict=True):
        step = max(1, strip.total // _POINTS)
        counts = [*range(0, strip.total, step), strip.total - 1]
        points = [(left, top + high)]
        for count in counts:
            seconds = strip.finishes[count].finished - strip.begun
            points.append((left + wide * seconds / longest, top + high * (1 - (count + 1) / strip.total)))
        shapes.append(page.path(points, colour))
    labels = [
        (f"{name.name}, {name.seconds:.1f} s", colour) for name, colour in zip(metrics, _STRIP_COLOURS, strict=True)
    ]
    for number, (label, colour) in enumerate(labels):
        y = top + high - 14 - 18 * (len(labels) - number)
        shapes += [page.box(left + wide - 130, y - 9, 10, 10, colour), page.words(left + wide - 114, y, label)]
    return page.picture(width, height, shapes, "Records finished over time, a line for each queue")


def _round_step(length: float) -> float:
    """Return 1, 2 or 5 times a power of ten that fits into `length` four to ten times."""
    power: float = 10.0 ** math.floor(math.log10(length / 4))
    return max(power * factor for factor in (1, 2, 5) if power * factor <= length / 4)


def _order(strip: Strip, metrics: StripMetrics) -> str:
    """Draw the records finished in the middle of the drain, and the order in which they were sent."""
    middle = max(0, (strip.total - _CLOSE_RECORDS) // 2)
    positions = [finish.offset for finish in strip.finishes[middle : middle + _CLOSE_RECORDS]]
    sent = {position: place for place, position in enumerate(sorted(positions))}
    width, height, top = 400.0, 330.0, 24.0
    step = (height - top - 10) / max(1, len(positions) - 1)
    lines, wrong = [], []
    latest: dict[int, int] = {}
    for place, position in enumerate(positions):
        key = strip.plan.keys[position]
        ends = (60, top + step * sent[position], width - 60, top + step * place)
        if position < latest.get(key, -1):
            wrong.append(page.line(*ends, _WRONG, 3))
        else:
            latest[key] = position
            lines.append(page.line(*ends, key_colour(key, strip.plan.key_count), 1.5))
    shapes = [page.words(60, 12, "sent", "middle"), page.words(width - 60, 12, "finished", "middle"), *lines, *wrong]
    of = "second key" if metrics.split_into else "key"
    title = f"{metrics.name}: {len(wrong)} of these {len(positions)} out of order in their {of}"
    return f"<div><h3>{title}</h3>" + page.picture(width, height, shapes, title) + "</div>"


def _work(strip: Strip, metrics: StripMetrics, work_ms: float) -> str:
    """Draw the workers' activity over a moment in the middle of the drain."""
    seconds = max(_CLOSE_WORKS * work_ms / 1000, 0.02)
    begun = strip.finishes[strip.total // 2].begun
    width, row, left = 400.0, 20.0, 34.0
    height = row * strip.plan.workers + 24
    shapes = []
    for worker in range(strip.plan.workers):
        shapes += [
            page.words(left - 8, row * worker + 14, str(worker + 1), "end"),
            page.line(left, row * worker + row - 1, width, row * worker + row - 1, "#eef1f4"),
        ]
    for finish in strip.finishes:
        if finish.finished > begun and finish.begun < begun + seconds:
            first = max(0.0, finish.begun - begun) / seconds
            last = min(1.0, (finish.finished - begun) / seconds)
            colour = key_colour(strip.plan.keys[finish.offset], strip.plan.key_count)
            x = left + (width - left) * first
            shapes.append(page.box(x, row * finish.worker + 2, (width - left) * (last - first), row - 5, colour))
    shapes += [
        page.line(left, height - 20, width, height - 20, _AXIS),
        page.words(left, height - 5, "0"),
        page.words(width, height - 5, f"{seconds * 1e3:.0f} ms", "end"),
    ]
    title = f"{metrics.name}: {metrics.mean_busy_workers:.1f} of {metrics.workers} at work on average"
    return f"<div><h3>{title}</h3>" + page.picture(width, height, shapes, title) + "</div>"
