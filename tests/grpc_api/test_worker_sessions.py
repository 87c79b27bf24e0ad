"""Sessions over a worker's stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.v1 import queues_pb2 as pb
from tests.grpc_api.api import Api
from tests.grpc_api.queue_workers import Delivery, QueueGroup, Worker, receipts, unpacked
from tests.grpc_api.test_queues import keyed


@pytest.fixture
def group(api: Api) -> QueueGroup:
    """Keys a (3 records) and b (2)."""
    found = QueueGroup(api, grace_seconds=30.0)
    api.produce(found.topic, keyed(b"a", b"b", b"a", b"a", b"b"))
    return found


def open_session(worker: Worker, key: bytes | None = b"a", **fields: Any) -> pb.SessionAnswer:
    worker.send(open_session=pb.OpenSession(correlation_id=77, key=key, **fields))
    return answer_of(worker)


def answer_of(worker: Worker) -> pb.SessionAnswer:
    """The next message, which answers request 77."""
    answer: pb.SessionAnswer = worker.expect("session")
    assert answer.correlation_id == 77
    return answer


def test_the_first_records_of_a_session_are_within_its_credit_in_bytes(api: Api) -> None:
    group = QueueGroup(api)
    api.produce(group.topic, keyed(*[b"k"] * 500))
    worker = group.worker()
    opened = open_session(worker, b"k", prefetch=500, credit_bytes=1)
    assert opened.has_records
    first = worker.deliveries()
    assert [delivery.offset for delivery in first] == [0], "a record comes, however large it is, and no other"
    worker.send(credit=pb.Credit(bytes=1 << 20, session_token=opened.token))
    assert [delivery.offset for delivery in worker.deliveries(499)] == list(range(1, 500))


def renew(worker: Worker, key: bytes, token: int) -> str:
    worker.send(renew_session=pb.RenewSession(correlation_id=77, session=pb.SessionRef(key=key, token=token)))
    return answer_of(worker).status.reason


def close(worker: Worker, key: bytes, token: int) -> str:
    worker.send(close_session=pb.CloseSession(correlation_id=77, session=pb.SessionRef(key=key, token=token)))
    return answer_of(worker).status.reason


def settled_and_more(worker: Worker, **fields: Any) -> list[Delivery]:
    """Settle something of a session: the answer, and what follows in the session, come in either order."""
    correlation_id = worker.send_settle(**fields)
    responses = {response.WhichOneof("response"): response for response in (worker.next(), worker.next())}
    assert responses["settled"].settled == pb.SettleAnswer(correlation_id=correlation_id)
    return unpacked(responses["deliveries"].deliveries)


def test_a_session_gets_its_records_in_order(group: QueueGroup) -> None:
    worker = group.worker()
    opened = open_session(worker, prefetch=2)
    assert (opened.key, opened.state, opened.lock_ms) == (b"a", b"", 30_000)
    assert opened.token > 0
    message = worker.expect("deliveries")
    assert (message.session_token, message.session_key) == (opened.token, b"a")
    first = unpacked(message)
    assert [delivery.offset for delivery in first] == [0, 2]
    other = group.worker()
    assert [delivery.offset for delivery in other.take(1)] == [1], "others get other keys"
    assert [delivery.offset for delivery in settled_and_more(worker, acks=receipts(first[:1]))] == [3]
    assert group.describe().counts.sessions == 1
    [lane] = group.explain(b"a")
    assert (lane.state, lane.worker_id, lane.session_token) == ("in session", worker.worker_id, opened.token)


def test_a_state_moves_with_the_acks(group: QueueGroup) -> None:
    worker = group.worker()
    token = open_session(worker).token
    taken = worker.deliveries(1)
    stale = pb.SessionState(key=b"a", token=token + 1, state=b"stale")
    large = pb.SessionState(key=b"a", token=token, state=bytes(262_145))
    for state, reason in ((stale, "STALE_SESSION"), (large, "STATE_TOO_LARGE")):
        assert worker.settle(acks=receipts(taken), states=[state]) == {(0, 0): reason}
    state = pb.SessionState(key=b"a", token=token, state=bytes(262_144))
    broken = pb.Receipts(firsts=[taken[0].receipt, 7], lasts=[taken[0].receipt, 6])
    assert worker.settle(acks=broken, states=[state])[0, 0] == "INVALID_REQUEST"
    assert group.describe().counts.acked == 0, "all, or nothing"
    assert [delivery.offset for delivery in settled_and_more(worker, acks=receipts(taken), states=[state])] == [2]
    assert close(worker, b"a", token) == ""
    opened = open_session(worker)
    assert opened.state == bytes(262_144)
    assert opened.token > token
    assert worker.deliveries(1)[0].offset == 2


def test_the_next_free_session(group: QueueGroup) -> None:
    worker, other = group.worker(), group.worker()
    assert open_session(worker, None).key == b"a"
    assert open_session(other, None).key == b"b"
    third = group.worker()
    assert open_session(third, None).status.reason == "NO_FREE_SESSION"
    assert open_session(third, b"a").status.reason == "SESSION_HELD"
    assert open_session(third, b"idle").token > 0


def test_waiting_for_a_session(group: QueueGroup) -> None:
    worker, other = group.worker(), group.worker()
    token = open_session(worker).token
    worker.deliveries(1)
    other.send(open_session=pb.OpenSession(correlation_id=77, key=b"a", max_wait_ms=20_000))
    assert close(worker, b"a", token) == ""
    assert answer_of(other).token > token
    assert other.deliveries(1)[0].attempt == 1


def test_a_late_holder_is_refused(api: Api) -> None:
    group = QueueGroup(api, lease_seconds=0.3, backoff_initial_seconds=0.0)
    api.produce(group.topic, keyed(b"a"))
    worker, other = group.worker(), group.worker()
    token = open_session(worker).token
    held = worker.deliveries(1)
    lost = worker.expect("session")
    assert (lost.correlation_id, lost.status.reason) == (0, "STALE_SESSION")
    assert (lost.key, lost.token) == (b"a", token)
    opened = open_session(other)
    assert opened.token > token
    assert renew(worker, b"a", token) == "STALE_SESSION"
    assert close(worker, b"a", token) == "STALE_SESSION"
    assert set(worker.settle(acks=receipts(held)).values()) == {"STALE_SESSION"}
    state = pb.SessionState(key=b"a", token=token, state=b"late")
    assert worker.settle(states=[state]) == {(0, 0): "STALE_SESSION"}


def test_a_renewed_session_lasts(api: Api) -> None:
    group = QueueGroup(api, lease_seconds=0.5)
    api.produce(group.topic, keyed(b"a"))
    worker = group.worker()
    token = open_session(worker).token
    held = worker.deliveries(1)
    for _ in range(100):
        assert renew(worker, b"a", token) == ""
    worker.ack(held)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"prefetch": 0}, "INVALID_REQUEST"),
        ({"prefetch": -1}, "INVALID_REQUEST"),
        ({"prefetch": 2**31 - 1}, "INVALID_REQUEST"),
        ({"max_wait_ms": -1}, "INVALID_REQUEST"),
        ({"max_wait_ms": 2**31 - 1}, "INVALID_REQUEST"),
    ],
)
def test_sessions_that_cannot_be_opened(group: QueueGroup, fields: dict[str, Any], reason: str) -> None:
    worker = group.worker()
    answer = open_session(worker, **fields)
    assert answer.status.reason == reason
    assert open_session(worker).token > 0, "the stream goes on"


def test_sessions_need_an_ordering_by_key(api: Api) -> None:
    group = QueueGroup(api, ordering="none")
    assert open_session(group.worker()).status.reason == "INVALID_REQUEST"


def test_a_crowd_of_requests_for_sessions(group: QueueGroup) -> None:
    holder, worker = group.worker(), group.worker()
    open_session(holder)
    for number in range(1001):
        worker.send(open_session=pb.OpenSession(correlation_id=number, key=b"a", max_wait_ms=60_000))
    answer = worker.expect("session")
    assert (answer.correlation_id, answer.status.reason) == (1000, "OVERLOADED")
    worker.goodbye()


def test_long_keys_and_empty_ones(api: Api) -> None:
    group = QueueGroup(api)
    long_key = b"k" * 1_000_000
    api.produce(group.topic, keyed(long_key, b""))
    worker = group.worker()
    for key in (long_key, b""):
        opened = open_session(worker, key)
        assert opened.key == key
        message = worker.expect("deliveries")
        assert message.session_token == opened.token
        assert [delivery.key for delivery in unpacked(message)] == [key]
        state = pb.SessionState(key=key, token=opened.token, state=b"kept")
        assert worker.settle(acks=receipts(unpacked(message)), states=[state]) == {}
        assert renew(worker, message.session_key, opened.token) == ""
        assert close(worker, key, opened.token) == ""


def test_a_goodbye_frees_sessions(group: QueueGroup) -> None:
    worker, other = group.worker(), group.worker()
    open_session(worker)
    worker.deliveries(1)
    worker.goodbye()
    assert open_session(other).token > 0
    assert other.deliveries(1)[0].attempt == 1


def test_a_worker_comes_back_to_its_sessions(group: QueueGroup) -> None:
    worker = group.worker()
    token = open_session(worker, prefetch=2).token
    taken = worker.deliveries(2)
    worker.break_()
    back = group.joining(
        worker.worker_id,
        incarnation=worker.incarnation,
        held=pb.Places(partitions=[0, 0], offsets=[0, 2]),
        sessions=[pb.SessionRef(key=b"a", token=token, prefetch=2), pb.SessionRef(key=b"b", token=token)],
    )
    welcome = back.welcome()
    assert welcome.resumed
    assert [(session.key, session.token) for session in welcome.sessions] == [(b"a", token)]
    assert [delivery.offset for delivery in settled_and_more(back, acks=receipts(taken))] == [3]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with embedded(tmp_path / "data") as running:
        yield running


@pytest.mark.prove
def test_after_a_crash_a_worker_reclaims_its_session(broker: EmbeddedBroker) -> None:
    api = Api(broker.address)
    group = QueueGroup(api, grace_seconds=5)
    api.produce(group.topic, keyed(b"a", b"a", b"a"))
    worker = group.worker()
    token = open_session(worker, prefetch=2).token
    taken = worker.deliveries(2)
    state = pb.SessionState(key=b"a", token=token, state=b"one done")
    assert [delivery.offset for delivery in settled_and_more(worker, acks=receipts(taken[:1]), states=[state])] == [2]
    broker.kill()
    assert worker.refused()[0] is grpc.StatusCode.UNAVAILABLE
    api.channel.close()
    broker.start()
    group.connect(Api(broker.address))
    back = group.joining(
        worker.worker_id,
        incarnation=worker.incarnation,
        held=pb.Places(partitions=[0], offsets=[1]),
        sessions=[pb.SessionRef(key=b"a", token=token, prefetch=2)],
    )
    assert [(session.key, session.token) for session in back.welcome().sessions] == [(b"a", token)]
    assert [delivery.offset for delivery in back.deliveries(2)] == [1, 2]
    assert close(back, b"a", token) == ""
    opened = open_session(back, max_wait_ms=20_000)
    assert opened.token > token
    assert opened.state == b"one done"
    group.api.channel.close()
