"""Fetch sessions: a client that lists only changes gets what one gets that lists everything; and the rules of KIP-227.

The simulation has clients as Kafka's are (FetchSessionHandler), a log, lost answers and a cache that is too small.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from logbroker.embedded_broker import EmbeddedBroker
from logbroker.kafka_api import fetch_sessions
from logbroker.kafka_api.apis.table import TABLE
from logbroker.kafka_api.fetch_sessions import (
    EVICTION_SECONDS,
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_FETCH_SESSION_EPOCH,
    Exchange,
    FetchSessions,
    PartitionName,
    Told,
    TopicKey,
    _Entry,
    _Session,
)
from logbroker.kafka_wire.apis import FETCH
from logbroker.kafka_wire.messages import fetch as f
from logbroker.kafka_wire.primitives import NO_UUID
from tests.kafka_api.raw_client import RawClient, batch_of, produce
from tests.kafka_api.test_apis import fetch_request, id_of, values_of
from tests.speeds import examples

T = TopicKey("t", NO_UUID)
Wishes = dict[PartitionName, f.FetchRequestPartition]
Answers = dict[PartitionName, f.FetchResponsePartitionData]


def named(number: int) -> PartitionName:
    return PartitionName(T, number)


def wishes(*numbers: int, offset: int = 0) -> Wishes:
    return {named(number): f.FetchRequestPartition(partition=number, fetch_offset=offset) for number in numbers}


def answered(exchange: Exchange, now: float = 0.0, **changes: Any) -> Told:
    """Answer each partition with nothing new, but for some fields."""
    fields: dict[str, Any] = {"high_watermark": 5, "log_start_offset": 0, "records": b""} | changes
    return exchange.answered(
        {name: f.FetchResponsePartitionData(partition_index=name.partition, **fields) for name in exchange.wishes},
        now,
    )


def begun(
    sessions: FetchSessions, session_id: int, epoch: int, wanted: Wishes, *forgotten: int, now: float = 0.0
) -> Exchange:
    exchange = sessions.begin(session_id, epoch, wanted, list(map(named, forgotten)), now, by_id=False)
    assert isinstance(exchange, Exchange)
    return exchange


def session_of(sessions: FetchSessions, *numbers: int, now: float = 0.0) -> int:
    return answered(begun(sessions, 0, INITIAL_EPOCH, wishes(*numbers), now=now), now).session_id


# --- the rules ---


def test_only_news_is_told() -> None:
    sessions = FetchSessions()
    full = answered(begun(sessions, 0, INITIAL_EPOCH, wishes(0, 1)))
    assert full.session_id
    assert list(full.answers) == [named(0), named(1)], "a full answer has all"
    quiet = answered(begun(sessions, full.session_id, 1, {}))
    assert quiet == Told(0, full.session_id, {})
    changes: list[dict[str, Any]] = [
        {"high_watermark": 6},
        {"high_watermark": 6, "log_start_offset": 1},
        {"high_watermark": 6, "log_start_offset": 1, "records": b"r"},
        {"error_code": 3},
        {"error_code": 3},
        {"diverging_epoch": f.FetchResponseEpochEndOffset(epoch=1, end_offset=2)},
        {"diverging_epoch": f.FetchResponseEpochEndOffset(epoch=1, end_offset=2)},
    ]
    for epoch, change in enumerate(changes, 2):
        told = answered(begun(sessions, full.session_id, epoch, {}), **change)
        assert told.answers.keys() == {named(0), named(1)}, change


def test_what_comes_after_an_error_is_told() -> None:
    sessions = FetchSessions()
    session_id = session_of(sessions, 0)
    assert answered(begun(sessions, session_id, 1, {}), error_code=6).answers
    assert answered(begun(sessions, session_id, 2, {})).answers, "the high watermark as before the error"
    assert not answered(begun(sessions, session_id, 3, {})).answers


def test_partitions_are_added_changed_and_forgotten() -> None:
    sessions = FetchSessions()
    session_id = session_of(sessions, 0, 1, 2)
    exchange = begun(sessions, session_id, 1, wishes(3) | wishes(1, offset=7), 0)
    found = {name.partition: wish.fetch_offset for name, wish in exchange.wishes.items()}
    assert found == {1: 7, 2: 0, 3: 0}
    assert answered(exchange).answers.keys() == {named(3)}
    assert sessions.partitions == 3


def test_partitions_with_records_are_read_last_next_time() -> None:
    sessions = FetchSessions()
    session_id = session_of(sessions, 0, 1, 2)
    exchange = begun(sessions, session_id, 1, {})
    answers = {
        name: f.FetchResponsePartitionData(high_watermark=5, log_start_offset=0, records=b"r" * (name.partition == 0))
        for name in exchange.wishes
    }
    assert exchange.answered(answers, 0.0).answers.keys() == {named(0)}
    assert list(begun(sessions, session_id, 2, {}).wishes) == [named(1), named(2), named(0)]


def test_a_session_without_partitions_ends() -> None:
    sessions = FetchSessions()
    session_id = session_of(sessions, 0, 1)
    exchange = begun(sessions, session_id, 1, {}, 0, 1)
    assert not exchange.wishes
    assert answered(exchange) == Told(0, 0, {})
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_requests_out_of_turn_are_refused() -> None:
    sessions = FetchSessions()
    session_id = session_of(sessions, 0)

    def refused(session_id: int, epoch: int, *, by_id: bool = False) -> Exchange | int:
        return sessions.begin(session_id, epoch, {}, [], 0.0, by_id=by_id)

    other = session_id % (2**31 - 1) + 1
    assert refused(other, 1) == refused(0, 1) == refused(-1, 5) == FETCH_SESSION_ID_NOT_FOUND
    assert [refused(session_id, epoch) for epoch in (2, -2, 2**31 - 1)] == [INVALID_FETCH_SESSION_EPOCH] * 3
    assert refused(session_id, 1, by_id=True) == FETCH_SESSION_TOPIC_ID_ERROR
    assert isinstance(refused(session_id, 1), Exchange)
    assert refused(session_id, 1) == INVALID_FETCH_SESSION_EPOCH, "once"


def test_a_request_that_is_overtaken_is_refused_in_the_end() -> None:
    sessions = FetchSessions()
    session_id = session_of(sessions, 0)
    first, second = begun(sessions, session_id, 1, {}), begun(sessions, session_id, 2, {})
    assert answered(first) == Told(INVALID_FETCH_SESSION_EPOCH, session_id, {})
    assert answered(second).error_code == 0


def test_epochs_begin_again_at_one() -> None:
    sessions = FetchSessions()
    session_id = session_of(sessions, 0)
    sessions._sessions[session_id].epoch = 2**31 - 1
    answered(begun(sessions, session_id, 2**31 - 1, {}))
    assert answered(begun(sessions, session_id, 1, {})).error_code == 0


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_a_full_request_ends_the_session_before(epoch: int) -> None:
    sessions = FetchSessions()
    session_id = session_of(sessions, 0)
    told = answered(begun(sessions, session_id, epoch, wishes(0)))
    assert told.answers.keys() == {named(0)}
    assert bool(told.session_id) == (epoch == INITIAL_EPOCH)
    assert session_id not in sessions._sessions
    assert sessions.partitions == len(sessions) == (epoch == INITIAL_EPOCH)


# --- the bounds ---


def test_an_idle_session_gives_way() -> None:
    sessions = FetchSessions(max_sessions=2)
    first, second = session_of(sessions, 0, 1, now=0.0), session_of(sessions, 0, now=1.0)
    assert answered(begun(sessions, first, 1, {}, now=EVICTION_SECONDS)).error_code == 0
    assert not session_of(sessions, 0, now=EVICTION_SECONDS + 1.0)
    assert session_of(sessions, 0, now=EVICTION_SECONDS + 1.1), "in the place of the second"
    assert sessions.begin(second, 1, {}, [], 200.0, by_id=False) == FETCH_SESSION_ID_NOT_FOUND
    assert answered(begun(sessions, first, 2, {}, now=200.0)).error_code == 0


def test_a_smaller_session_gives_way_when_it_is_old() -> None:
    sessions = FetchSessions(max_sessions=2)
    large, small = session_of(sessions, 0, 1, 2), session_of(sessions, 0, 1)
    for epoch in (1, 2):
        for each in (large, small):
            answered(begun(sessions, each, epoch, {}, now=epoch * 0.6 * EVICTION_SECONDS))
    now = 1.3 * EVICTION_SECONDS
    assert not session_of(sessions, 0, 1, now=now), "no smaller one is there"
    assert session_of(sessions, 0, 1, 2, now=now)
    assert sessions.begin(small, 3, {}, [], now, by_id=False) == FETCH_SESSION_ID_NOT_FOUND
    assert not session_of(sessions, 0, 1, 2, 3, now=EVICTION_SECONDS), "a young one stays"


def test_partitions_are_bounded_in_all_sessions_together() -> None:
    sessions = FetchSessions(max_partitions=5)
    first, second = session_of(sessions, 0, 1, 2), session_of(sessions, 0, 1)
    assert first
    assert second
    assert not session_of(sessions, 0)
    assert sessions.begin(first, 1, wishes(3), [], 0.0, by_id=False) == FETCH_SESSION_ID_NOT_FOUND, "it ends"
    assert (len(sessions), sessions.partitions) == (1, 2)


def test_the_partitions_of_a_session_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_ITEMS", 3)
    sessions = FetchSessions()
    session_id = session_of(sessions, 0, 1)
    assert len(begun(sessions, session_id, 1, wishes(2)).wishes) == 3
    assert sessions.begin(session_id, 2, wishes(3), [], 0.0, by_id=False) == FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partitions == 0


@pytest.mark.parametrize("name", ["x" * 250, "", "no topic name", "\N{SNOWMAN}"])
def test_names_that_no_topic_can_have_are_not_remembered(name: str) -> None:
    sessions = FetchSessions()
    odd = {PartitionName(TopicKey(name, NO_UUID), 0): f.FetchRequestPartition()}
    told = answered(begun(sessions, 0, INITIAL_EPOCH, wishes(0) | odd))
    assert (len(told.answers), told.session_id) == (2, 0)
    session_id = session_of(sessions, 0)
    assert sessions.begin(session_id, 1, odd, [], 0.0, by_id=False) == FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partitions == 0


def test_an_id_is_not_given_twice() -> None:
    ids = iter((7, 7, 7, 8))
    sessions = FetchSessions(new_id=lambda: next(ids))
    assert [session_of(sessions, 0), session_of(sessions, 0)] == [7, 8]


# --- a simulation ---


class Log:
    """Partitions with a start and an end; some are gone for a while."""

    def __init__(self, chance: random.Random, count: int) -> None:
        self._chance = chance
        self.ends = dict.fromkeys(map(named, range(count)), 0)
        self.starts = dict.fromkeys(self.ends, 0)
        self.gone: set[PartitionName] = set()

    def change(self) -> None:
        for name in self._chance.sample(sorted(self.ends), 2):
            what = self._chance.random()
            if what < 0.5:
                self.ends[name] += self._chance.randrange(3)
            elif what < 0.6:
                self.starts[name] = self._chance.randint(self.starts[name], self.ends[name])
            else:
                self.gone ^= {name}

    def read(self, wanted: Mapping[PartitionName, f.FetchRequestPartition], most: int) -> Answers:
        answers = {}
        for name, wish in wanted.items():
            answer = answers[name] = f.FetchResponsePartitionData(partition_index=name.partition, records=b"")
            if name in self.gone:
                answer.error_code, answer.high_watermark = 3, -1
                continue
            answer.high_watermark, answer.log_start_offset = self.ends[name], self.starts[name]
            count = max(0, min(self.ends[name] - max(wish.fetch_offset, self.starts[name]), most))
            answer.records = b"r" * count
            most -= count
        return answers


class Client:
    """A consumer with a session, as KIP-227 describes it."""

    def __init__(self, chance: random.Random, log: Log) -> None:
        self._chance = chance
        self._log = log
        self._session_id = 0
        self._epoch = INITIAL_EPOCH
        self._sent: dict[PartitionName, int] = {}
        self.positions: dict[PartitionName, int] = {}
        self._told: dict[PartitionName, tuple[int, int, int]] = {}
        """Error, high watermark and log start offset, as the broker has told them last."""

    def reassign(self) -> None:
        wanted = self._chance.sample(sorted(self._log.ends), self._chance.randint(1, len(self._log.ends)))
        self.positions = {name: self.positions.get(name, 0) for name in wanted}
        self._told = {name: told for name, told in self._told.items() if name in self.positions}

    def fetch(self, sessions: FetchSessions, now: float, *, is_lost: bool, most: int) -> None:
        is_full = self._epoch == INITIAL_EPOCH
        changed = {name: offset for name, offset in self.positions.items() if is_full or self._sent.get(name) != offset}
        forgotten = [name for name in self._sent if name not in self.positions and not is_full]
        self._sent = dict(self.positions)
        request = {
            name: f.FetchRequestPartition(partition=name.partition, fetch_offset=offset)
            for name, offset in changed.items()
        }
        exchange = sessions.begin(self._session_id, self._epoch, request, forgotten, now, by_id=False)
        if isinstance(exchange, int):
            # Either the id is not known, or the session begins anew under a full request that ends it.
            self._session_id = 0 if exchange == FETCH_SESSION_ID_NOT_FOUND else self._session_id
            self._epoch = INITIAL_EPOCH
            return
        wanted = {name: wish.fetch_offset for name, wish in exchange.wishes.items()}
        assert wanted == self.positions, "the broker reads what the client wants"
        told = exchange.answered(self._log.read(exchange.wishes, most), now)
        if is_lost:
            return  # The epochs differ from here on.
        assert told.error_code == 0
        self._take(told)
        self._session_id = told.session_id
        self._epoch = self._epoch + 1 if told.session_id else INITIAL_EPOCH

    def _take(self, told: Told) -> None:
        for name, answer in told.answers.items():
            self._told[name] = answer.error_code, answer.high_watermark, answer.log_start_offset
            self.positions[name] = max(self.positions[name], answer.log_start_offset) + len(answer.records or b"")
        for name in self.positions:
            is_gone = name in self._log.gone
            now = (3, -1, -1) if is_gone else (0, self._log.ends[name], self._log.starts[name])
            assert self._told[name] == now, "the client knows what there is"

    def check_all_read(self, sessions: FetchSessions, now: float) -> None:
        """In a few rounds the client has read everything that there is."""
        for _ in range(4 + len(self.positions)):
            self.fetch(sessions, now, is_lost=False, most=100)
        left = {name for name, at in self.positions.items() if at < self._log.ends[name]} - self._log.gone
        assert not left, "some records were never sent"


def simulate(seed: int) -> None:
    chance = random.Random(seed)
    log, now = Log(chance, 6), 0.0
    sessions = FetchSessions(max_sessions=2, max_partitions=9)
    clients = [Client(chance, log) for _ in range(3)]
    for client in clients:
        client.reassign()
    for _ in range(80):
        log.change()
        now += chance.choice((0.0, 1.0, EVICTION_SECONDS / 2))
        client = chance.choice(clients)
        if chance.random() < 0.2:
            client.reassign()
        client.fetch(sessions, now, is_lost=chance.random() < 0.1, most=chance.choice((1, 3, 100)))
        assert len(sessions) <= 2
        assert sessions.partitions == sum(len(each.entries) for each in sessions._sessions.values()) <= 9
    for client in clients:
        client.check_all_read(sessions, now)


def simulate_all(seeds: int) -> None:
    for seed in range(seeds):
        simulate(seed)


def test_a_client_with_a_session_gets_everything() -> None:
    simulate_all(examples(30, 1000))


def forgets_what_has_records(patch: pytest.MonkeyPatch) -> None:
    real = _Session.news

    def news(session: _Session, answers: Answers) -> Answers:
        found = real(session, answers)
        for name, answer in answers.items():
            if answer.records:
                session.entries.pop(name, None)
        return found

    patch.setattr(_Session, "news", news)


def forgets_what_is_not_named(patch: pytest.MonkeyPatch) -> None:
    def update(session: _Session, wishes: Wishes, forgotten: object) -> None:
        session.entries = {name: session.entries.get(name) or _Entry(wish) for name, wish in wishes.items()}
        for name, wish in wishes.items():
            session.entries[name].wish = wish

    patch.setattr(_Session, "update", update)


def forgets_the_last_with_those_to_forget(patch: pytest.MonkeyPatch) -> None:
    real = _Session.update

    def update(session: _Session, wishes: Wishes, forgotten: list[PartitionName]) -> None:
        real(session, wishes, forgotten)
        if forgotten and session.entries:
            session.entries.popitem()

    patch.setattr(_Session, "update", update)


def keeps_what_is_to_be_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = _Session.update
    patch.setattr(_Session, "update", lambda session, wishes, forgotten: real(session, wishes, ()))


def keeps_old_offsets(patch: pytest.MonkeyPatch) -> None:
    def update(session: _Session, wishes: Wishes, forgotten: list[PartitionName]) -> None:
        for name, wish in wishes.items():
            session.entries.setdefault(name, _Entry(wish))
        for name in forgotten:
            session.entries.pop(name, None)

    patch.setattr(_Session, "update", update)


def tells_records_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Entry, "has_news", lambda entry, answer: bool(answer.records) or bool(answer.error_code))


def does_not_tell_the_end_of_an_error(patch: pytest.MonkeyPatch) -> None:
    real = _Entry.has_news

    def has_news(entry: _Entry, answer: f.FetchResponsePartitionData) -> bool:
        before = entry.high_watermark, entry.log_start_offset
        found = real(entry, answer)
        if answer.error_code:
            entry.high_watermark, entry.log_start_offset = before
        return found

    patch.setattr(_Entry, "has_news", has_news)


PLANTS = (
    forgets_what_has_records,
    forgets_what_is_not_named,
    forgets_the_last_with_those_to_forget,
    keeps_what_is_to_be_forgotten,
    keeps_old_offsets,
    tells_records_only,
    does_not_tell_the_end_of_an_error,
)


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_noticed(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        simulate_all(30)


# --- over sockets ---


@pytest.mark.parametrize("version", [each for each in TABLE[FETCH.key].versions if each >= 7])
def test_a_session_over_a_socket(broker: EmbeddedBroker, topic: str, version: int) -> None:
    topic_id = id_of(broker, topic)

    def request(
        session_id: int, epoch: int, *partitions: tuple[int, int], forgotten: tuple[int, ...] = ()
    ) -> f.FetchRequest:
        made = fetch_request(version, topic, topic_id, 0, session_id=session_id, session_epoch=epoch)
        named = {"topic": topic} if version < 13 else {"topic_id": topic_id}
        made.topics[0].partitions = [
            f.FetchRequestPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
            for number, offset in partitions
        ]
        if not partitions:
            made.topics = []
        if forgotten:
            made.forgotten_topics_data = [f.FetchRequestForgottenTopic(**named, partitions=list(forgotten))]
        return made

    def found(answer: f.FetchResponse) -> dict[int, list[bytes | None]]:
        return {
            each.partition_index: values_of(bytes(each.records or b""))
            for one in answer.responses
            for each in one.partitions
        }

    with RawClient(broker.kafka_address) as client:
        produce(client, topic, 0, batch_of(b"a"))
        full = client.call(FETCH, version, request(0, 0, (0, 0), (1, 0), (2, 0)))
        session_id = full.session_id
        assert session_id > 0
        assert found(full) == {0: [b"a"], 1: [], 2: []}
        quiet = client.call(FETCH, version, request(session_id, 1, (0, 1)))
        assert (quiet.error_code, quiet.session_id, found(quiet)) == (0, session_id, {})
        produce(client, topic, 2, batch_of(b"c"))
        assert found(client.call(FETCH, version, request(session_id, 2))) == {2: [b"c"]}
        with RawClient(broker.kafka_address) as other:
            produce(other, topic, 1, batch_of(b"b"))
            moved = other.call(FETCH, version, request(session_id, 3, (2, 1), forgotten=(0,)))
            assert found(moved) == {1: [b"b"]}, "a session belongs to no connection"
        assert client.call(FETCH, version, request(session_id, 3)).error_code == INVALID_FETCH_SESSION_EPOCH
        produce(client, topic, 0, batch_of(b"unseen"))
        assert found(client.call(FETCH, version, request(session_id, 4, (1, 1)))) == {}
        ended = client.call(FETCH, version, request(session_id, -1))
        assert (ended.error_code, ended.session_id, ended.responses) == (0, 0, [])
        gone = client.call(FETCH, version, request(session_id, 5))
        assert (gone.error_code, gone.session_id) == (FETCH_SESSION_ID_NOT_FOUND, 0)


def test_a_session_by_names_takes_no_ids(broker: EmbeddedBroker, topic: str) -> None:
    with RawClient(broker.kafka_address) as client:
        session_id = client.call(FETCH, 12, fetch_request(12, topic, b"", 0, session_epoch=0)).session_id
        request = fetch_request(13, topic, id_of(broker, topic), 0, session_id=session_id, session_epoch=1)
        assert client.call(FETCH, 13, request).error_code == FETCH_SESSION_TOPIC_ID_ERROR


def test_a_quiet_session_waits_for_records(broker: EmbeddedBroker, topic: str) -> None:
    with RawClient(broker.kafka_address) as reader, RawClient(broker.kafka_address) as writer:
        session_id = reader.call(FETCH, 12, fetch_request(12, topic, b"", 0, session_epoch=0)).session_id
        request = f.FetchRequest(session_id=session_id, session_epoch=1, min_bytes=1, max_wait_ms=20_000)
        reader.send(FETCH, 12, request)
        produce(writer, topic, 0, batch_of(b"a"))
        _, answer = reader.receive(FETCH, 12)
    assert values_of(bytes(answer.responses[0].partitions[0].records)) == [b"a"]
