"""Outcome of a storm: what is in the topics, and figures of what happened."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from logbroker.client import Admin, Consumer, Record, TopicGeneration
from logbroker.errors import StaleSessionError
from logbroker.record.dead_letter import ATTEMPTS, ORIGIN_OFFSET, ORIGIN_PARTITION, header_value
from tests.queue_storm.queue_checker import Facts
from tests.queue_storm.queue_history import (
    OUTPUTS,
    PART,
    Event,
    How,
    RecordId,
    SessionEnded,
    SessionOpened,
    SettleBegun,
    SettleEnded,
    Taken,
    lane_name,
)
from tests.queue_storm.weather import Weather

TOPIC = "work"
DEAD = "dead"


async def facts_of(admin: Admin, address: str, weather: Weather, *, ended: bool) -> Facts:
    """Read what the broker has in the end; `ended`: whether everything is finished."""
    generations = (await admin.describe_topic(TOPIC)).generations
    lanes: dict[str, list[RecordId]] = defaultdict(list)
    for record in await _read(address, TOPIC):
        lanes[lane_name(record.key, dict(record.headers).get(PART))].append(RecordId(record.partition, record.offset))
    for record_ids in lanes.values():
        record_ids.sort(key=lambda record_id: (_generation_of(record_id, generations), record_id))
    dead: dict[RecordId, list[int]] = defaultdict(list)
    if weather.on_exhausted == "dead-letter":
        for record in await _read(address, DEAD):
            names = (ORIGIN_PARTITION, ORIGIN_OFFSET, ATTEMPTS)
            partition, offset, attempts = (int(header_value(record.headers, name) or -1) for name in names)
            dead[RecordId(partition, offset)].append(attempts)
    outputs: dict[str, list[RecordId]] | None = None
    if weather.has_outputs:
        outputs = defaultdict(list)
        for record in await _read(address, OUTPUTS):
            origin = (record.value or b"").split(b":")
            outputs[(record.key or b"").decode()].append(RecordId(*map(int, origin)))
    return Facts(
        lanes=lanes,
        outputs=outputs,
        dead=dead,
        max_attempts=weather.max_attempts,
        set_aside=weather.on_exhausted != "dead-letter",
        ended=ended,
    )


async def _read(address: str, topic: str) -> list[Record]:
    async with Consumer(address) as consumer:
        await consumer.assign([topic])
        return [record async for record in consumer.until_end()]


def _generation_of(record_id: RecordId, generations: tuple[TopicGeneration, ...]) -> int:
    """Return the generation of the topic in which a record was written."""
    found = 0
    for number, generation in enumerate(generations):
        starts = generation.start_offsets
        if record_id.partition < generation.partitions:
            begun = starts[record_id.partition] if record_id.partition < len(starts) else 0
            if record_id.offset >= begun:
                found = number
    return found


def figures_of(events: Iterable[Event]) -> Counter[str]:
    """Count what the workers noted."""
    figures = Counter[str]()
    for event in events:
        match event:
            case Taken():
                figures["records delivered"] += len(event.deliveries)
                figures["repeats delivered"] += sum(each.redelivered or each.attempt > 1 for each in event.deliveries)
            case SettleBegun():
                figures[f"records {event.how.value}ed" if event.how is not How.RELEASE else "records released"] += 1
            case SettleEnded():
                for reason in event.refused.values():
                    figures[f"refused {reason}"] += 1
            case SessionOpened():
                figures["sessions opened"] += 1
            case SessionEnded():
                figures["stale words refused"] += event.refused == StaleSessionError.reason
    return figures
