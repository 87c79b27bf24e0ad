"""Priorities of queue groups over the API: settings, bands, what is refused, and the order in which records come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
import pytest

from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.message_headers import PRIORITY
from tests.grpc_api.api import Api
from tests.grpc_api.queue_workers import QueueGroup, receipts

BANDS = "now=8-9:1,soon=5-7:1,later=0-4:2"


def batch(records: Iterable[tuple[bytes, int]]) -> bytes:
    """Values, which are their keys too, with their priorities; all of one timestamp."""
    return encode_batch(
        [NewRecord(value, value, [(PRIORITY, b"%d" % priority)], timestamp_ms=1000) for value, priority in records]
    )


def refused(call: Any, **arguments: Any) -> str:
    """Return the message of an INVALID_REQUEST."""
    with pytest.raises(grpc.RpcError) as caught:
        call(**arguments)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    return str(caught.value.details())


# --- settings --------------------------------------------------------------------------------------------------------


def test_what_is_set_is_told(api: Api) -> None:
    settings: dict[str, Any] = {"priority": "weighted", "priority_rank": "head", "weights": {"hot": 7, "cold": 2}}
    group = QueueGroup(api, **settings)
    assert not group.create(**settings).created
    told = group.describe().settings
    assert (told.priority, told.priority_rank, dict(told.weights)) == ("weighted", "head", {"hot": 7, "cold": 2})
    told = group.alter(priority="ageing", age_seconds=5.0).queue.settings
    assert (told.priority, told.age_seconds, dict(told.weights)) == ("ageing", 5.0, {})
    assert group.alter(age_seconds=7.0).queue.settings.age_seconds == 7.0
    assert group.alter(priority="none").queue.settings.priority == "none"


def test_dead_letters_go_to_no_topic_that_is_routed_by_priority(api: Api) -> None:
    """They keep the order of their key, which such a topic has in several partitions."""
    bands, by_key = "letters-by-priority", "letters-by-key"
    api.create(bands, 4, priority_bands=BANDS)
    api.create(by_key, 4, priority_bands=BANDS, priority_routing="key")
    group = QueueGroup(api, create=False)
    settings = {"on_exhausted": "dead-letter", "dead_letter_topic": bands}
    told = refused(group.create, **settings)
    assert bands in told
    assert "name a topic without bands, or with priority.routing=key" in told
    group.create()
    assert refused(group.alter, **settings) == told
    assert group.describe().settings.on_exhausted == "block", "nothing was changed"
    assert group.alter(on_exhausted="dead-letter", dead_letter_topic=by_key).queue.settings.dead_letter_topic == by_key
    assert group.alter(dead_letter_topic="letters-made-now").queue.settings.dead_letter_topic == "letters-made-now"


def test_defaults_follow_the_topic(api: Api) -> None:
    assert QueueGroup(api).describe().settings.priority == "none"
    group = QueueGroup(api, partitions=4, bands=BANDS)
    assert group.describe().settings.priority == "strict"
    assert group.describe().settings.priority_rank == "lane"
    assert dict(group.alter(priority="weighted").queue.settings.weights) == {"now": 6, "soon": 3, "later": 1}
    assert QueueGroup(api, partitions=4, bands=BANDS, priority="none").describe().settings.priority == "none"
    assert QueueGroup(api, bands="all=0-9:1", ordering="single").describe().settings.priority == "none"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"priority": "urgent"}, "priority takes none or strict or weighted or ageing"),
        ({"priority": "strict", "priority_rank": "tail"}, "priority_rank takes lane or head"),
        ({"priority": "strict", "ordering": "single"}, "order by key or not at all"),
        ({"priority": "strict", "weights": {"hot": 1}}, "weights are of no use with priority strict"),
        ({"weights": {"hot": 1}}, "weights are of no use with priority none"),
        ({"priority": "strict", "age_seconds": 5.0}, "age_seconds is of no use with priority strict"),
        ({"priority": "ageing", "age_seconds": 0.0}, "age_seconds is 0.0: give 0.001 to"),
        ({"priority": "ageing", "age_seconds": float("nan")}, "age_seconds is nan"),
        ({"priority": "weighted", "weights": {"hot": 0, "cold": 0}}, "all weights are 0"),
        ({"priority": "weighted", "weights": {"hot": -1}}, "give 0 to 1,000,000"),
        (
            {"priority": "weighted", "weights": {"tepid": 1}},
            "no band 'tepid' to give a weight: name hot or warm or cold",
        ),
    ],
)
def test_settings_that_contradict_are_refused(api: Api, settings: dict[str, Any], says: str) -> None:
    group = QueueGroup(api, create=False)
    assert says in refused(group.create, **settings)
    group.create(ordering=settings.get("ordering", "key"))
    assert says in refused(group.alter, **settings)


# --- bands -----------------------------------------------------------------------------------------------------------


def test_a_band_that_there_is_not_is_refused(api: Api) -> None:
    group = QueueGroup(api, priority="strict")
    says = "there is no band 'now': ask for hot or warm or cold"
    assert says in refused(group.receive, band="now")
    assert group.joining(band="now").refused() == (grpc.StatusCode.INVALID_ARGUMENT, says)
    with_bands = QueueGroup(api, partitions=4, bands=BANDS)
    assert "ask for now or soon or later" in refused(with_bands.receive, band="hot")


def test_a_group_without_priorities_has_no_bands(api: Api) -> None:
    group = QueueGroup(api)
    says = "the queue group has no priorities, and no band 'hot': ask for no band, or alter its priority"
    assert says in refused(group.receive, band="hot")
    assert group.joining(band="hot").refused() == (grpc.StatusCode.INVALID_ARGUMENT, says)


def test_a_worker_of_a_band_gets_its_records_alone(api: Api) -> None:
    group = QueueGroup(api, priority="strict")
    hot, rest = group.worker(band="hot"), group.worker()
    bands = [(each.band, each.lowest_priority, each.highest_priority) for each in group.describe().workers]
    assert sorted(bands) == [("", 0, 0), ("hot", 7, 9)]
    api.produce(group.topic, batch([(b"a", 1), (b"b", 8), (b"c", 5), (b"d", 7)]))
    assert [each.value for each in hot.take(2)] == [b"b", b"d"]
    hot.credit(1)
    assert [each.value for each in rest.take(2)] == [b"c", b"a"]
    assert group.receive(band="hot") == []
    api.produce(group.topic, batch([(b"e", 0), (b"f", 9)]))
    assert [each.value for each in hot.deliveries(1)] == [b"f"]
    assert [each.value for each in group.receive(5, band="cold", max_wait_ms=5000)] == [b"e"]


def test_bands_are_those_of_the_topic(api: Api) -> None:
    group = QueueGroup(api, partitions=4, bands=BANDS)
    for partition, (value, priority) in enumerate([(b"a", 9), (b"b", 6), (b"c", 4), (b"d", 0)]):
        api.produce(group.topic, batch([(value, priority)]), partition)
    assert [each.value for each in group.receive(5, band="soon", max_wait_ms=5000)] == [b"b"]
    assert [each.value for each in group.receive(5, max_wait_ms=5000)] == [b"a", b"c", b"d"]


# --- what comes, and what is told ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordering", ["none", "key"])
def test_the_most_urgent_comes_first_whatever_its_partition(api: Api, ordering: str) -> None:
    group = QueueGroup(api, partitions=3, ordering=ordering, priority="strict")
    api.produce(group.topic, batch([(b"a", 2), (b"b", 4)]), 0)
    api.produce(group.topic, batch([(b"c", 9), (b"d", 3)]), 1)
    api.produce(group.topic, batch([(b"e", 2), (b"f", 8)]), 2)
    assert [each.value for each in group.receive(10, max_wait_ms=5000)] == [b"c", b"f", b"b", b"d", b"a", b"e"]


def test_what_waits_is_told_by_priority(api: Api) -> None:
    group = QueueGroup(api, priority="strict")
    api.produce(group.topic, batch([(b"a", 2), (b"b", 7), (b"c", 2)]))
    taken = group.receive(1, max_wait_ms=5000)
    assert [each.value for each in taken] == [b"b"]
    told = {each.priority: each for each in group.describe().priorities}
    assert list(told) == [7, 2]
    assert (told[7].waiting, told[7].delivered, told[7].oldest_timestamp_ms) == (0, 1, -1)
    assert (told[2].waiting, told[2].delivered, told[2].oldest_timestamp_ms, told[2].overtaken) == (2, 0, 1000, 1)
    assert group.settle(acks=receipts(taken)) == {}
    assert group.describe().state == "serving"
    assert list(QueueGroup(api).describe().priorities) == []


def test_explain_tells_as_what_a_lane_counts(api: Api) -> None:
    group = QueueGroup(api, priority="strict")
    records = [NewRecord(b"%d" % priority, b"k", [(PRIORITY, b"%d" % priority)]) for priority in (1, 8, 3)]
    api.produce(group.topic, encode_batch(records))
    taken = group.receive(1, max_wait_ms=5000)
    assert [each.value for each in taken] == [b"1"]
    assert [lane.level for lane in group.explain(b"k")] == [8]
    group.alter(priority_rank="head")
    assert group.settle(acks=receipts(taken)) == {}
    taken = group.receive(1, max_wait_ms=5000)
    assert [lane.level for lane in group.explain(b"k")] == [8]
    assert group.settle(acks=receipts(taken)) == {}
    assert [lane.level for lane in group.explain(b"k")] == [3]
    without = QueueGroup(api)
    api.produce(without.topic, encode_batch(records))
    without.receive(1, max_wait_ms=5000)
    assert not without.explain(b"k")[0].HasField("level")
