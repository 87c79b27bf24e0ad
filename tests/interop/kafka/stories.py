"""The stories of a client whose broker stops or is killed, with the checks at their ends.

The tests play each story once for each client, `make torture` with drawn settings and moments.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

from logbroker.client.sync import Admin, Producer
from logbroker.embedded_broker import EmbeddedBroker
from tests.anomalies import BrokenPromisesError
from tests.crash.checker import Kind, Log, LogRecordId, Outcome, Poll, Send, check
from tests.crash.log_files import LogFiles
from tests.interop.kafka.kcat import KCAT, KcatMember
from tests.interop.kafka.ports import restartable
from tests.interop.kafka.programs import CLIENTS, MemberProgram
from tests.kafka_api.group_checks import CommitWatch, Member, Members, check_handled
from tests.kafka_api.test_clients import PARTITIONS, records
from tests.kafka_api.test_group_clients import GROUP, SECONDS, committed, ends
from tests.waiting import until

ALL: Final = (*CLIENTS, KCAT)
_TRIES_AGAIN: Final = frozenset({Kind.DUPLICATE, Kind.REORDERED})
"""The faults that a producer which is not idempotent may leave in a log."""


def member_of(client: Any) -> Callable[..., Member]:
    """Return what makes a member of a group that uses a client."""
    return KcatMember if client is KCAT else MemberProgram


def _written(broker: EmbeddedBroker) -> int:
    with Admin(broker.address) as admin:
        return sum(each.high_watermark for each in admin.describe_topic("t").partitions)


def produce_through_stops(
    client: Any, directory: Path, stops: Sequence[str], *, idempotent: bool = True, acks: int = -1, codec: str = "none",
    burst: int = 100,
) -> Mapping[str, int]:  # fmt: skip
    """Let a client produce while its broker ends several times: "stop" or "kill". Nothing that it was told to be there
    is lost; an idempotent one repeats nothing, and keeps the order of each key. Raises BrokenPromisesError."""
    sent = records(5_000, "story")
    outcome: list[Any] = []

    def produce(address: str) -> None:
        try:
            way: dict[str, Any] = {"idempotent": idempotent, "acks": acks, "codec": codec}
            outcome.append(client.produce(address, "t", sent, burst=burst, pause_ms=20, **way))
        except BaseException as error:
            outcome.append(error)

    with restartable(directory / "data", group_initial_rebalance_delay_seconds=0) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic("t", partitions=PARTITIONS)
        thread = threading.Thread(target=produce, args=[broker.kafka_address])
        thread.start()
        met = 0
        for stop in stops:
            before = _written(broker)
            until(lambda before=before: _written(broker) > before or not thread.is_alive(), SECONDS)  # type: ignore[misc]
            if not thread.is_alive():
                break
            broker.stop() if stop == "stop" else broker.kill()
            broker.start()
            met += 1
        thread.join()
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        assert met > (0 if client is KCAT else 1)  # It does not wait for answers, and may be through.
        number = _written(broker)
        found = client.read(broker.kafka_address, "t", PARTITIONS, "earliest", number)
    assert len(outcome[0]) == len(sent)
    history = [Send(client.name, value, key or b"") for key, value in sent]
    for place, partition, offset in outcome[0]:
        if offset >= 0:
            history[place].outcome, history[place].log = Outcome.OK, Log("t", partition)
            history[place].offset = offset
    polls = [Poll("reader", [(LogRecordId(Log("t", each.partition), each.offset), each.value)]) for each in found]
    files = LogFiles(directory / "data")
    files.read(power_cut=False)
    wrong = check([*history, *polls], files.final())
    if not idempotent:
        wrong = [each for each in wrong if each.kind not in _TRIES_AGAIN]
    missing = {value for _, value in sent} - {each.value for each in found}
    if wrong or missing:
        told = [f"acknowledged, then gone: {value!r}" for value in sorted(missing)]
        raise BrokenPromisesError([*map(str, wrong), *told], (each.kind for each in wrong))
    return {"records": number, "stops": met}


def group_through_stops(client: Any, directory: Path, seed: int, *, rounds: int = 8, **settings: Any) -> dict[str, int]:
    """Let members of a group come, go and be killed, and the broker stop and be killed, while records come. Each is
    handled, and first in its order; no committed offset is lost."""
    draw, watch, is_over = random.Random(seed), CommitWatch(GROUP), threading.Event()
    sent: set[bytes] = set()
    failures: list[BaseException] = []

    def produce(address: str) -> None:
        try:
            with Producer(address) as producer:
                for number in count():
                    if is_over.wait(0.02):
                        return
                    values = {f"{number}-{each}".encode() for each in range(10)}
                    for value in values:
                        producer.send("t", value, key=value[-1:])
                    producer.flush()
                    sent.update(values)
        except BaseException as error:
            failures.append(error)

    with (
        restartable(directory / "data", group_initial_rebalance_delay_seconds=0.1) as broker,
        Members(client, broker.kafka_address, "t", GROUP, directory, member_of(client), **settings) as members,
    ):
        with Admin(broker.address) as admin:
            admin.create_topic("t", partitions=4)
        thread = threading.Thread(target=produce, args=[broker.address])
        thread.start()
        alive = [members.start()]
        try:
            for _ in range(rounds):
                before = len(members.handled())
                until(lambda before=before: len(members.handled()) > before, SECONDS)  # type: ignore[misc]
                watch.look(broker.address)
                match draw.choice(["join", "leave", "kill", "stop broker", "kill broker"]):
                    case "leave" if len(alive) > 1:
                        alive.pop(draw.randrange(len(alive))).leave()
                    case "kill" if len(alive) > 1:
                        alive.pop(draw.randrange(len(alive))).kill()
                    case "stop broker":
                        broker.stop()
                        broker.start()
                    case "kill broker":
                        broker.kill()
                        broker.start()
                    case _:
                        alive.append(members.start())
        finally:
            is_over.set()
            thread.join()
        if failures:
            raise failures[0]
        until(lambda: members.values() >= sent, SECONDS)
        until(lambda: watch.look(broker.address) and committed(broker) == ends(broker), SECONDS)
        check_handled(members.handled(), sent)
        return {"handled": len(members.handled()), "rounds": rounds}
