"""`logbroker queue`: why a key stands, and what an operator does about it."""

from __future__ import annotations

import io
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, islice
from typing import Any

import msgspec
import pytest

from logbroker.cli.common import terminal
from logbroker.cli.common.clients import CommandQueueAdmin
from logbroker.cli.queue import again
from logbroker.cli.queue.lanes import explanation
from logbroker.cli.queue.text import value_text
from logbroker.client.sync import Admin, Consumer, Producer, QueueAdmin, QueueSettings, Worker, WorkerDelivery
from logbroker.errors import DiskFullError
from tests.cli.command import output_of
from tests.cli.queues import Queue, exhaust, send, take
from tests.waiting import until


def test_explain_says_on_one_screen_why_a_key_stands(queue: Queue, topic: str, name: str) -> None:
    exhaust(queue, topic, name, "block")
    text = queue("explain", name, "c2")
    assert text.count("\n") <= 24
    for word in ("blocked", "2 of 2 failed", "4 records", "no good", "offset", "first failure", "ago", "resume it"):
        assert word in text
    lane = queue.json("explain", name, "c2")
    assert (lane["key"], lane["state"], lane["waiting"], lane["attempt"]) == ("c2", "blocked", 4, 3)
    assert lane["reasons"] == ["no good", "no good"]
    assert 0 <= lane["oldest_age_ms"] < 60_000
    assert queue.json("explain", name, "YzI=", "--base64")["state"] == "blocked"
    idle = queue.json("explain", name, "c1")
    assert (idle["state"], idle["waiting"], idle["offset"]) == ("idle", 0, None)
    assert "it has no waiting records" in queue("explain", name, "c1")
    queue("alter", name, "--ordering", "none")
    assert f"the group has ordering none, so its records are not found by key: see logbroker queue parked {name}" in (
        queue("explain", name, "c1")
    )
    queue("alter", name, "--ordering", "key")


def test_explain_tells_a_retry_from_a_time_that_is_still_ahead(queue: Queue, topic: str, name: str) -> None:
    queue("create", name, "--topic", topic, "--backoff", "600,1,600")
    with Producer(queue.address) as producer:
        not_before = b"%d" % ((time.time() + 600) * 1000)
        producer.send(topic, b"", b"later", headers=[("logbroker-not-before", not_before)])
        producer.send(topic, b"", b"failed")
    with Worker(queue.address, name) as worker:
        for delivery in worker:
            if delivery.key == b"failed":
                delivery.nack().result()
                break
            delivery.ack()
    later, failed = queue("explain", name, "later"), queue("explain", name, "failed")
    assert "has a time before which it is not delivered" in later
    assert "  due           in " in later
    assert "failed and waits for its next attempt" in failed
    assert "  next retry    in " in failed
    # Lanes that wait go on by themselves: they are stalled, and not held.
    assert "stalled" in queue("describe", name)
    assert queue.json("describe", name)["counts"]["held_lanes"] == 2
    assert queue.json("lanes", name, "--order", "held")["total"] == 0
    assert queue.json("lanes", name, "--order", "waiting")["total"] == 2


def test_explain_says_what_a_ready_lane_waits_for_while_its_group_halts(queue: Queue, topic: str, name: str) -> None:
    queue("create", name, "--topic", topic, "--grace", "30")
    with Worker(queue.address, name, prefetch=1) as worker, QueueAdmin(queue.address) as admin:
        held = next(iter(worker)).key
        key = next(key for key in (b"c1", b"c2") if key != held)
        admin.alter_queue(name, QueueSettings(ordering="key", key_header="h"))
        why = "nothing new is handed out until 1 record in flight is settled: the altered settings take effect then"
        assert f"  {why}" in queue("explain", name, key.decode())
        assert f"draining: {why}" in queue("describe", name)
        waiting = msgspec.structs.replace(admin.describe_queue(name), state="waiting")
        why = "only the workers from before the start of the broker are served, until the grace is over (30 s)"
        assert why in "".join(explanation(admin.explain_lane(name, key), waiting))


def test_explain_names_the_lease_that_a_split_waits_for(queue: Queue, topic: str, name: str) -> None:
    queue("create", name, "--topic", topic)
    with Worker(queue.address, name) as worker:
        key = next(iter(worker)).key
        assert key is not None
        queue("split", name, key.decode(), "--by", "header:h")
        explained = queue("explain", name, key.decode())
        assert ": splitting\n" in explained
        assert re.search(r"\n  lease ends    in .* s, unless the worker extends it\n", explained)


def test_explain_offers_all_that_can_be_done_with_a_parked_lane(queue: Queue, topic: str, name: str) -> None:
    exhaust(queue, topic, name, "park")
    text = queue("explain", name, "c2")
    for decision in ("resume", "skip", "replace", "drop"):
        assert decision in text
    queue("replace", name, "c2", "--value", "mended")


def test_a_decision_about_a_key_that_does_not_wait_says_so(queue: Queue, topic: str, name: str) -> None:
    exhaust(queue, topic, name, "block")
    said = queue("skip", name, "nobody", exit_code=1)
    assert said.rstrip().endswith("the queue group has no waiting records of key 'nobody'")


def test_a_key_that_a_worker_has_is_explained_and_cannot_be_moved(queue: Queue, topic: str, name: str) -> None:
    queue("create", name, "--topic", topic)
    with Worker(queue.address, name, worker_id="w-1") as worker:
        key = next(iter(worker)).key
        assert key is not None
        explained = queue("explain", name, key.decode())
        assert "  holder        w-1" in explained
        assert re.search(r"\n  handed out    .* m?s ago\n", explained)
        assert 0 < queue.json("explain", name, key.decode())["held_ms"] < 60_000
        assert re.search(r"\n  lease ends    in .* s, unless the worker extends it\n", explained)
        refused = queue("resume", name, key.decode(), exit_code=1)
        assert "`logbroker queue explain` names its worker: wait until it is done, or stop it" in refused


def test_lanes_shows_the_hottest_and_the_oldest(queue: Queue, topic: str, name: str) -> None:
    queue("create", name, "--topic", topic)
    with Producer(queue.address) as producer:
        for _ in range(30):
            producer.send(topic, b"", b"c3")
    with Worker(queue.address, name, prefetch=1) as worker:
        next(iter(worker))  # All is scanned now.
        deadline = time.monotonic() + 20
        while queue.json("describe", name)["counts"]["unscanned"]:
            assert time.monotonic() < deadline
        both = queue.json("lanes", name, "--top", "2")
        assert set(both) == {"hottest", "oldest"}
        assert both["hottest"]["total"] == 5
        assert (both["hottest"]["lanes"][0]["key"], both["hottest"]["lanes"][0]["waiting"]) == ("c3", 34)
        assert len(both["oldest"]["lanes"]) == 2
        assert queue.json("lanes", name, "--order", "held") == {"total": 0, "incomplete": False, "lanes": []}
        text = queue("lanes", name)
    for word in ("hottest", "oldest", "c3", "34"):
        assert word in text


@pytest.mark.parametrize("policy", ["block", "park"])
def test_a_lane_that_stands_is_resumed_skipped_and_dropped(queue: Queue, topic: str, name: str, policy: str) -> None:
    exhaust(queue, topic, name, policy)
    held = queue.json("parked", name)
    assert held["total"] == 1
    (lane,) = held["lanes"]
    assert (lane["key"], lane["state"]) == ("c2", "blocked" if policy == "block" else "parked")
    assert "c2" in queue("parked", name)
    assert queue("skip", name, "c2") == "skipped the first record of lane c2: 1 record done\n"
    assert queue.json("explain", name, "c2")["waiting"] == 3
    assert take(queue.address, name, 3) == [7, 12, 17]
    assert queue("parked", name) == "no lane waits for an operator\n"
    error = queue("resume", name, "c2", "nothing", exit_code=1)
    assert error.count("\n") == 1
    assert "1 more failed" in error


def test_describe_shows_alarms_and_counts_them(queue: Queue, topic: str, name: str) -> None:
    exhaust(queue, topic, name, "park", "--max-parked", "3")
    document = queue.json("describe", name)
    assert [alarm["kind"] for alarm in document["alarms"]] == ["parked"]
    assert document["counts"]["alarms_raised"] == 1
    assert "ALARM parked: 4 records are parked" in queue("describe", name)


def test_describe_says_how_long_dead_letters_are_kept(queue: Queue, topic: str, name: str) -> None:
    queue("create", name, "--topic", topic, "--on-exhausted", "dead-letter")
    kept = "dead letters are kept"
    assert [line.split()[-2:] for line in queue("describe", name).splitlines() if kept in line] == [["for", "ever"]]
    with Admin(queue.address) as admin:
        admin.alter_topic(
            f"{name}.dead-letters", set_configs={"retention.ms": "86400000", "retention.bytes": "1048576"}
        )
        text = " ".join(queue("describe", name).split())
        assert f"dead-letter topic {name}.dead-letters dead letters are kept for" in text
        assert "for 1.0 d, up to 1.0 MiB a partition, sent back or not; then retention removes them" in text
        admin.delete_topic(f"{name}.dead-letters")
    assert kept not in queue("describe", name)


@pytest.mark.prove
def test_a_dead_letter_that_is_too_large_is_told_of_and_holds_nothing_else(queue: Queue, topic: str, name: str) -> None:
    """One among 200, in a broker of its own process."""
    queue("create", name, "--topic", topic, "--max-attempts", "1", "--on-exhausted", "dead-letter")
    letters, limit = f"{name}.dead-letters", {"max.message.bytes": "1000"}
    with Admin(queue.address) as admin, Producer(queue.address) as producer:
        admin.alter_topic(letters, set_configs=limit)
        for number in range(179):
            producer.send(topic, b"", b"k%d" % number)
        producer.send(topic, random.Random(1).randbytes(5000), b"large")
        producer.send(topic, b"behind it", b"large")
        producer.flush()
        with Worker(queue.address, name) as worker, ThreadPoolExecutor(1) as pool:
            running = pool.submit(worker.run, lambda delivery: delivery.nack(reason="no good"))
            try:
                until(lambda: queue.json("describe", name)["counts"]["dead_lettered"] == 199)
                document = queue.json("describe", name)
                assert [(alarm["kind"], alarm["key"]) for alarm in document["alarms"]] == [("letters", "large")]
                assert document["counts"]["refused_letters"] == 1
                assert "ALARM letters (key large): " in queue("describe", name)
                explained = queue("explain", name, "large")
                for words in (
                    "dead-lettering",
                    "raise max.message.bytes there to",
                    "skip, resume or replace",
                    "2 records",
                ):
                    assert words in explained
                assert queue.json("parked", name)["lanes"][0]["key"] == "large"
                admin.alter_topic(letters, unset_configs=list(limit))
                until(lambda: queue.json("describe", name)["counts"]["dead_lettered"] == 201)
            finally:
                worker.stop()
            running.result()
        admin.alter_topic(topic, set_configs=limit)
        assert "1 cannot be sent back" not in queue("redrive", name, "--dry-run")
        error = queue("redrive", name, exit_code=1)
        assert "2 dead letters stay, because they, or an earlier one of the same key, cannot be sent back: " in error
        assert "raise its max.message.bytes to" in error
        assert queue("redrive", name, "--json", exit_code=1) == error
        admin.alter_topic(topic, unset_configs=list(limit))
        assert queue("redrive", name) == "2 dead letters sent back\n"


def test_all_lanes_that_stand_are_resumed(queue: Queue, topic: str, name: str) -> None:
    exhaust(queue, topic, name, "park")
    assert queue.json("resume", name, "--all") == {"lanes": 1, "records_done": 0, "refused": 0}
    assert queue("resume", name, "--all") == "no lane waits for an operator\n"
    assert take(queue.address, name, 4) == [2, 7, 12, 17]


def test_heads_of_all_lanes_are_skipped_after_a_question(
    queue: Queue, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exhaust(queue, topic, name, "block")
    for answer in ("n\n", ""):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        asked = queue("skip", name, "--all", exit_code=1)
        assert "Mark the first record of all lanes that are blocked, parked or refused" in asked
        assert "nothing was done" in asked
    assert queue.json("describe", name)["counts"]["blocked_lanes"] == 1
    assert queue.json("skip", name, "--all", "--yes") == {"lanes": 1, "records_done": 1, "refused": 0}
    assert take(queue.address, name, 3) == [7, 12, 17]


def test_a_lane_is_dropped_with_all_that_is_there(
    queue: Queue, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exhaust(queue, topic, name, "block")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert "nothing was done" in queue("drop", name, "c2", exit_code=1)
    assert queue.json("drop", name, "c2", "--yes") == [{"key": "c2", "records_done": 4}]
    send(queue.address, topic, range(22, 23))
    assert take(queue.address, name, 1) == [22]


def test_the_head_of_a_lane_is_replaced(queue: Queue, topic: str, name: str) -> None:
    exhaust(queue, topic, name, "block")
    assert "replaced" in queue("replace", name, "c2", "--value", "mended", "--header", "by=me")
    with Worker(queue.address, name) as worker:
        for delivery in worker:
            assert (delivery.value, delivery.key, delivery.headers) == (b"mended", b"c2", (("by", b"me"),))
            delivery.ack().result()
            break


def test_explain_shows_the_record_that_workers_get(queue: Queue, topic: str, name: str) -> None:
    exhaust(queue, topic, name, "block")
    assert "\n  value         2\n" in queue("explain", name, "c2")
    lane = queue.json("explain", name, "c2")
    assert (lane["replaced"], lane["record"]["topic"], lane["record"]["value"]) == (False, topic, "2")
    assert lane["record"]["offset"] == lane["offset"]
    queue("replace", name, "c2", "--value", "mended")
    text, lane = queue("explain", name, "c2"), queue.json("explain", name, "c2")
    assert ", replaced by an operator\n  value         mended\n" in text
    assert (lane["replaced"], lane["record"]["value"]) == (True, "mended")


def test_explain_shows_the_whole_of_a_large_record(queue: Queue, topic: str, name: str) -> None:
    with Admin(queue.address) as admin, Producer(queue.address) as producer:
        admin.alter_topic(topic, set_configs={"max.message.bytes": "16777216"})
        producer.send_and_wait(topic, b"x" * 6_000_000, b"large")
    queue("create", name, "--topic", topic)
    until(lambda: queue.json("explain", name, "large")["state"] == "ready")
    assert len(queue.json("explain", name, "large")["record"]["value"]) == 6_000_000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "(none)"),
        (b"", "(empty)"),
        ("käse\n\x1b[2J".encode(), "käse\\n\\x1b[2J"),
        (b"\xff\xc3", "\\xff\\xc3"),
        (b"x" * 90, "x" * 90),
        (b"x" * 89 + "ä".encode(), "x" * 89 + "... (91 bytes)"),
    ],
)
def test_a_value_is_shown_in_one_line(value: bytes | None, text: str) -> None:
    assert value_text(value) == text


def test_a_replacement_is_handed_out_at_once(queue: Queue, topic: str, name: str) -> None:
    """The lane was held already, so a time to wait for is refused and not ignored."""
    exhaust(queue, topic, name, "block")
    header = "logbroker-not-before=4102444800000"
    assert "leave out header logbroker-not-before" in queue(
        "replace", name, "c2", "--value", "later", "--header", header, exit_code=1
    )


def test_an_empty_standard_input_is_no_value(
    queue: Queue, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a job of cron has it. Whoever wants an empty value says so."""
    exhaust(queue, topic, name, "block")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    assert "standard input is empty" in queue("replace", name, "c2", exit_code=2)
    assert "replaced" in queue("replace", name, "c2", "--value", "")


def test_letters_that_were_not_sent_back_are_listed(queue: Queue, topic: str, name: str) -> None:
    """One key is sent back and fails again, so it has letters of both kinds."""
    queue("create", name, "--topic", topic, "--max-attempts", "1", "--on-exhausted", "dead-letter")

    def fail_all(count: int) -> None:
        with Worker(queue.address, name) as worker:
            for delivery in islice(worker, count):
                delivery.nack(reason=f"no {text_of(delivery)}")
        until(lambda: queue.json("redrive", name, "--dry-run")["records"] == 20)

    def text_of(delivery: WorkerDelivery) -> str:
        return (delivery.value or b"").decode()

    def left(*options: str) -> list[str]:
        return [letter["value"] for letter in queue.json("letters", name, *options)["letters"]]

    assert "no dead letter is left" in queue("letters", name)
    fail_all(20)
    by_key = [[str(number) for number in range(key, 20, 5)] for key in range(5)]
    assert sorted(left(), key=int) == [str(number) for number in range(20)]
    assert left("--key", "c2") == by_key[2]
    assert "no dead letter of this key is left" in queue("letters", name, "--key", "c9")
    queue("redrive", name, "--key", "c2")
    none = f"none with this key is left (`logbroker queue letters {name}` lists the keys)"
    assert queue("redrive", name, "--key", "nobody") == f"0 dead letters sent back; {none}\n"
    assert left("--key", "c2") == []
    fail_all(4)
    assert left("--key", "c2") == by_key[2]
    assert len(left()) == 20
    queue("redrive", name, "--key", "c3", "--max-records", "2")
    assert left("--key", "c3") == by_key[3][2:]
    assert sorted(left(), key=int) == [str(number) for number in range(20) if number not in (3, 8)]
    document = queue.json("letters", name, "--top", "3")
    assert (len(document["letters"]), document["more"]) == (3, True)
    text = queue("letters", name, "--key", "c3")
    [row] = [line.split() for line in text.splitlines() if "no 13" in line]
    letter = queue.json("letters", name, "--key", "c3")["letters"][0]
    headers = {header["key"]: header["value"] for header in letter["headers"]}
    assert row[0] == f"{letter['partition']}:{letter['offset']}"
    assert row[1:3] == ["c3", "1"]
    assert f"{headers['logbroker-origin-partition']}:{headers['logbroker-origin-offset']}" in row
    assert letter["topic"] == f"{name}.dead-letters"
    queue("alter", name, "--on-exhausted", "park")
    assert left("--key", "c3") == by_key[3][2:], "the letters stay, whatever the group does with other records"


@pytest.mark.prove
def test_letters_that_are_made_meanwhile_stay(
    queue: Queue, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would go on for ever beside a worker that fails the same records again."""
    exhaust(queue, topic, name, "dead-letter")
    redrive, calls = CommandQueueAdmin.redrive, count()

    def then_fail_again(self: CommandQueueAdmin, group: str, **options: Any) -> Any:
        sent = redrive(self, group, **options)
        if not options.get("dry_run"):
            assert next(calls) < 10
            before = queue.json("describe", name)["counts"]["dead_lettered"]
            with Worker(queue.address, name) as worker:
                for delivery in islice(worker, 2 * sent.records):
                    delivery.nack().result()
            until(lambda: queue.json("describe", name)["counts"]["dead_lettered"] == before + sent.records)
        return sent

    monkeypatch.setattr(CommandQueueAdmin, "redrive", then_fail_again)
    monkeypatch.setattr(again, "_AT_ONCE", 2)
    assert queue("redrive", name) == "4 dead letters sent back\n"
    sent = queue.json("redrive", name, "--max-records", "3")
    assert (sent["records"], sent["more"]) == (3, True)


@pytest.mark.prove
def test_each_letter_goes_back_once_beside_a_worker_that_fails_all(queue: Queue, name: str) -> None:
    """More than one call takes, in several partitions: letters of the first that are made anew are not taken for those
    of the others."""
    records, partitions = 3000, 3
    with Admin(queue.address) as admin, Producer(queue.address) as producer:
        admin.create_topic(name, partitions)
        for number in range(records):
            producer.send(name, b"%d" % number, b"k%d" % number)
    queue("create", name, "--topic", name, "--max-attempts", "1", "--on-exhausted", "dead-letter", "--ordering", "none")
    with Worker(queue.address, name) as worker, ThreadPoolExecutor(1) as pool:
        running = pool.submit(worker.run, lambda delivery: delivery.nack(), concurrency=8)
        try:
            until(lambda: queue.json("describe", name)["counts"]["dead_lettered"] == records, 60)
            assert output_of("queue", "redrive", name, "--broker", queue.address) == b"3,000 dead letters sent back\n"
            until(lambda: queue.json("describe", name)["counts"]["dead_lettered"] == 2 * records, 60)
        finally:
            worker.stop()
        running.result()
    with Consumer(queue.address) as consumer:
        consumer.assign(name)
        values = Counter(record.value for record in consumer.until_end())
    assert values == {b"%d" % number: 2 for number in range(records)}, "once where it was sent, and once sent back"
    assert queue.json("redrive", name, "--dry-run")["records"] == records


@pytest.mark.prove
def test_a_redrive_that_fails_midway_says_how_many_it_sent(
    queue: Queue, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exhaust(queue, topic, name, "dead-letter")
    redrive, calls = CommandQueueAdmin.redrive, count()

    def fail_midway(self: CommandQueueAdmin, group: str, **options: Any) -> Any:
        if not options.get("dry_run") and next(calls) == 1:
            raise DiskFullError("no room")
        return redrive(self, group, **options)

    monkeypatch.setattr(CommandQueueAdmin, "redrive", fail_midway)
    monkeypatch.setattr(again, "_AT_ONCE", 3)
    assert "3 dead letters sent back; up to 3 more may have been; then: no room" in queue("redrive", name, exit_code=1)
    assert queue("redrive", name) == "1 dead letter sent back\n"


@pytest.mark.parametrize(("is_before", "more"), [(True, "; up to 3 more may have been"), (False, "")])
def test_a_redrive_that_is_stopped_says_how_many_it_sent(
    queue: Queue, topic: str, name: str, is_before: bool, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call without an answer may have sent some."""
    exhaust(queue, topic, name, "dead-letter")
    redrive, calls = CommandQueueAdmin.redrive, count(1)

    def then_stop(self: CommandQueueAdmin, group: str, **options: Any) -> Any:
        if next(calls) == 2 and is_before:
            signal.raise_signal(signal.SIGTERM)
        return redrive(self, group, **options)

    @contextmanager
    def progress(*_: object) -> Iterator[Callable[[int], None]]:
        yield lambda done: None if is_before else signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(CommandQueueAdmin, "redrive", then_stop)
    monkeypatch.setattr(terminal, "progress", progress)
    monkeypatch.setattr(again, "_AT_ONCE", 3)
    assert queue("redrive", name, exit_code=143).rstrip("\n") == f"logbroker: stopped: 3 dead letters sent back{more}"
    monkeypatch.undo()
    assert queue.json("redrive", name)["records"] == 1


def test_a_decision_about_lanes_that_is_stopped_says_how_many_it_moved(
    queue: Queue, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue("create", name, "--topic", topic)
    resumed: list[object] = []

    def resume(self: CommandQueueAdmin, group: str, lane: object) -> None:
        resumed.append(lane)
        if len(resumed) == 31:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(CommandQueueAdmin, "resume_lane", resume)
    told = queue("resume", name, *(f"k{number}" for number in range(40)), exit_code=143)
    assert told.rstrip("\n") == "logbroker: stopped: resumed 30 lanes; lane k30 may have been, too"


def test_dead_letters_go_back_in_their_order(
    queue: Queue, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exhaust(queue, topic, name, "dead-letter")
    planned = queue.json("redrive", name, "--dry-run")
    assert planned == {"records": 4, "keys": 1, "more": False, "held": 0, "why_held": None, "dry_run": True}
    assert "would be" in queue("redrive", name, "--dry-run")
    monkeypatch.setattr(again, "_MAX_COUNTED", 3)
    told = queue("redrive", name, "--dry-run")
    assert told == "3 dead letters of 1 key would be sent back (--dry-run); there are more, which were not counted\n"
    assert queue("redrive", name, "--key", "c2") == "4 dead letters sent back\n"
    assert take(queue.address, name, 4) == [2, 7, 12, 17]
    assert queue.json("redrive", name)["records"] == 0


def test_a_group_is_rewound(queue: Queue, topic: str, name: str) -> None:
    queue("create", name, "--topic", topic)
    assert sorted(take(queue.address, name, 20)) == list(range(20))
    before = {
        row["partition"]: row["floor_before"] for row in queue.json("rewind", name, "--to", "earliest", "--dry-run")
    }
    assert sum(before.values()) == 20
    assert "nothing was changed" in queue("rewind", name, "--to", "earliest", "--dry-run")
    rewound = queue.json("rewind", name, "--to", str(before[0] - 1), "--partition", "0", "--yes")
    offsets = {"partition": 0, "floor_before": before[0], "floor": before[0] - 1}
    assert rewound == [{**offsets, "standing_records": 0, "skipped_records": 0, "unreadable_records": 0}]
    assert len(take(queue.address, name, 1)) == 1


@pytest.mark.parametrize("options", [["--yes"], ["--dry-run"], []])
def test_a_rewind_beyond_the_end_is_refused(queue: Queue, topic: str, name: str, options: list[str]) -> None:
    queue("create", name, "--topic", topic)
    (end, _) = (row["end"] for row in queue.json("describe", name)["partitions"])
    refused = queue("rewind", name, "--to", f"{end + 1}", "--partition", "0", *options, exit_code=1)
    assert refused == (
        f"logbroker: partition 0 ends at offset {end}, before {end + 1}: to move to its end, give --to latest\n"
    )
    assert len(take(queue.address, name, 20)) == 20
    queue("rewind", name, "--to", f"{end}", "--partition", "0", "--yes")


def test_a_rewind_says_how_many_records_it_skips(
    queue: Queue, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue("create", name, "--topic", topic)
    assert len(take(queue.address, name, 2)) == 2
    latest = ("rewind", name, "--to", "latest")
    ends = [row["end"] for row in queue.json("describe", name)["partitions"]]
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert "may come again; 18 records not done yet will count as done [y/N]" in queue(*latest, exit_code=1)
    planned = queue.json(*latest, "--dry-run")
    assert sum(row["skipped_records"] for row in planned) == 18
    rows = [line.split() for line in queue(*latest, "--dry-run").splitlines()]
    for row in planned:
        partition = row["partition"]
        assert [*map(str, (partition, row["floor_before"], ends[partition], row["skipped_records"], 0))] in rows
    with QueueAdmin(queue.address) as queues:
        assert queue.json(*latest, "--yes") == planned
        assert sum(row.skipped_records for row in queues.rewind(name, "latest")) == 0
    assert queue.json("describe", name)["counts"]["waiting"] == 0


def test_a_rewind_counts_what_stands_before_it_is_dropped(
    queue: Queue, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exhaust(queue, topic, name, "block")
    latest = ("rewind", name, "--to", "latest")
    planned = queue.json(*latest, "--dry-run")
    assert sum(row["standing_records"] for row in planned) == 4
    assert queue.json(*latest, "--yes") == planned, "they stay"
    assert "standing, kept" in queue(*latest, "--dry-run")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert "may come again; 4 records of blocked and parked lanes will be kept [y/N]" in queue(*latest, exit_code=1)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = queue(*latest, "--drop-standing", exit_code=1)
    assert "4 records of blocked and parked lanes will count as done" in asked
    assert queue.json("describe", name)["counts"]["blocked_lanes"] == 1
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert "standing, dropped" in queue(*latest, "--drop-standing")
    counts = queue.json("describe", name)["counts"]
    assert (counts["blocked_lanes"], counts["open"]) == (0, 0)
