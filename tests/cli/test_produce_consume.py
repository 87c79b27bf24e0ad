"""`logbroker produce` and `logbroker consume` as processes: what goes in comes out, and faults are said."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import socket
import subprocess
import uuid
import warnings
from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from logbroker.cli.main import run
from logbroker.client.sync import Admin, Consumer, Producer
from logbroker.embedded_broker import EmbeddedBroker
from tests.cli.command import ENVIRONMENT, LOGBROKER, failure_of, line_of, logbroker, output_of
from tests.waiting import until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python still uses importlib.resources.read_text
    from kafka.partitioner.default import murmur2


@pytest.fixture
def topic(address: str) -> str:
    """A new topic of 4 partitions."""
    name = f"t-{uuid.uuid4()}"
    with Admin(address) as admin:
        # Records of some tests are old, and the broker lives longer than it takes until old ones go.
        admin.create_topic(name, 4, {"retention.ms": "-1"})
    return name


def consumed(address: str, topic: str, *options: str) -> list[dict[str, Any]]:
    out = output_of("consume", topic, "--broker", address, "--until-end", "--format", "json", *options)
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.prove
def test_lines_come_back_as_they_were(address: str, topic: str) -> None:
    lines = b"one\n\n two \xc3\xa9\r\nwithout an end"
    output_of("produce", topic, "--broker", address, "--partition", "1", stdin=lines)
    assert output_of("consume", topic, "--broker", address, "--until-end") == lines + b"\n"
    records = consumed(address, topic)
    assert [record["partition"] for record in records] == [1, 1, 1, 1]
    assert [record["offset"] for record in records] == [0, 1, 2, 3]
    assert {record["key"] for record in records} == {None}


@pytest.mark.prove
def test_csv_rows_are_ordered_by_key_on_the_partition_that_kafka_would_choose(address: str, topic: str) -> None:
    rows = [(f"key {number % 7}", str(number)) for number in range(5000)]
    text = "k,n\n" + "".join(f"{key},{number}\n" for key, number in rows)
    output_of("produce", topic, "--broker", address, "--format", "csv", "--key-column", "k", stdin=text.encode())
    by_key = defaultdict(list)
    for record in consumed(address, topic, "--from", "earliest"):
        value = json.loads(record["value"])
        assert value["k"] == record["key"]
        assert record["partition"] == (murmur2(record["key"].encode()) & 0x7FFFFFFF) % 4
        by_key[record["key"]].append(value["n"])
    expected = defaultdict(list)
    for key, number in rows:
        expected[key].append(number)
    assert by_key == expected


@pytest.mark.prove
def test_the_records_of_a_key_come_in_order_also_when_partitions_were_added(address: str, topic: str) -> None:
    for generation, partitions in enumerate((4, 7, 16)):
        if generation:
            output_of("topic", "alter", topic, "--partitions", str(partitions), "--broker", address)
        lines = "".join(f"key-{number % 50}:{generation * 2000 + number}\n" for number in range(2000))
        output_of("produce", topic, "--broker", address, "--key-separator", ":", stdin=lines.encode())
    for options in ((), ("--group", topic)):
        by_key = defaultdict(list)
        for record in consumed(address, topic, *options):
            by_key[record["key"]].append(int(record["value"]))
        assert sum(map(len, by_key.values())) == 6000
        assert all(numbers == sorted(numbers) for numbers in by_key.values())


@pytest.mark.prove
def test_consume_reads_added_partitions_too(address: str, topic: str) -> None:
    command = [*LOGBROKER, "consume", topic, "--broker", address, "--max-records", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as process:
        try:
            for number, partition in enumerate((3, 5, 8)):
                if number:
                    output_of("topic", "alter", topic, "--partitions", str(partition + 1), "--broker", address)
                output_of("produce", topic, "--broker", address, "--partition", str(partition), stdin=b"%d" % number)
                assert line_of(process) == b"%d\n" % number
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()


@pytest.mark.prove
def test_json_makes_the_round_trip(address: str, topic: str) -> None:
    records: list[dict[str, Any]] = [
        {"key": "text", "value": "é", "headers": [{"key": "h", "value": "1"}, {"key": "h", "value": None}]},
        {"key": "/w==", "key_encoding": "base64", "value": None, "timestamp": 1_600_000_000_000, "partition": 2},
        {"value": "AP8=", "value_encoding": "base64", "timestamp": 1},
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    output_of("produce", topic, "--broker", address, "--format", "json", stdin=lines)
    out = output_of("consume", topic, "--broker", address, "--until-end", "--json")
    with Admin(address) as admin:
        admin.create_topic(f"{topic}-copy", 4, {"retention.ms": "-1"})
    output_of("produce", f"{topic}-copy", "--broker", address, "--format", "json", stdin=out)
    back = consumed(address, f"{topic}-copy")
    first = [json.loads(line) for line in out.splitlines()]
    assert sorted(map(str, ({**record, "topic": f"{topic}-copy"} for record in first))) == sorted(map(str, back))
    for record in records:
        assert any(record.items() <= stored.items() for stored in first), record


@pytest.mark.prove
def test_a_line_that_is_not_utf8_stops_it_and_those_before_are_kept(address: str, topic: str) -> None:
    error = failure_of("produce", topic, "--broker", address, stdin=b"one\ntwo\n\xff\nfour\n")
    assert error == "logbroker: line 3 is not UTF-8: byte 0xff at column 1 (2 records before it were sent)"
    assert sorted(record["value"] for record in consumed(address, topic)) == ["one", "two"]
    output_of("produce", topic, "--broker", address, "--raw", stdin=b"\xff\n")
    (record,) = (record for record in consumed(address, topic) if "value_encoding" in record)
    assert (record["value"], record["value_encoding"]) == ("/w==", "base64")


@pytest.mark.prove
def test_base64_that_is_none_stops_it_and_those_before_are_kept(address: str, topic: str) -> None:
    lines = '{"value":"one"}\n{"value":"two"}\n{"value":"QUJDé==","value_encoding":"base64"}\n{"value":"four"}\n'
    error = failure_of("produce", topic, "--broker", address, "--format", "json", stdin=lines.encode())
    assert error.startswith("logbroker: line 3 is not a record: ")
    assert error.endswith(" (2 records before it were sent)")
    assert sorted(record["value"] for record in consumed(address, topic)) == ["one", "two"]


@pytest.mark.parametrize("input_format", ["lines", "json", "csv"])
def test_input_that_cannot_be_read_on_stops_it_and_those_before_are_kept(
    address: str, topic: str, input_format: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines() -> Iterator[bytes]:
        yield from {"lines": [b"a\n", b"b\n"], "json": [b'{"value":"a"}\n'] * 2, "csv": [b"x\n", b"1\n", b"2\n"]}[
            input_format
        ]
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    given = lines()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=SimpleNamespace(readline=lambda _: next(given))))
    assert run(["produce", topic, "--broker", address, "--format", input_format]) == 1
    reason = os.strerror(errno.EIO)
    expected = f"logbroker: standard input cannot be read: {reason} (2 records before it were sent)\n"
    assert capsys.readouterr().err == expected
    assert len(consumed(address, topic)) == 2


@pytest.mark.prove
def test_a_record_that_the_topic_does_not_take_is_refused_by_itself(address: str, topic: str) -> None:
    with Admin(address) as admin:
        admin.alter_topic(topic, set_configs={"max.message.bytes": "1000"})
    lines = b"one\ntwo\n" + b"x" * 2000 + b"\nfour\n"
    error = failure_of("produce", topic, "--broker", address, "--partition", "0", stdin=lines)
    assert "the topic takes 1000" in error
    assert error.endswith("(record 3 of the input; 2 before it and 1 after it were sent)")
    assert [record["value"] for record in consumed(address, topic)] == ["one", "two", "four"]


@pytest.mark.prove
def test_a_record_stamped_too_far_ahead_is_refused_by_itself(address: str, topic: str) -> None:
    rows = [{"value": str(number), "partition": 0} for number in range(20)]
    rows[4]["timestamp"] = (1 << 62) - 1
    text = "".join(json.dumps(row) + "\n" for row in rows)
    error = failure_of("produce", topic, "--broker", address, "--format", "json", stdin=text.encode())
    assert "message.timestamp.after.max.ms" in error
    assert error.endswith("(record 5 of the input; 4 before it and 15 after it were sent)")
    assert [record["value"] for record in consumed(address, topic)] == [str(n) for n in range(20) if n != 4]


@pytest.mark.prove
def test_a_topic_of_small_batches_takes_many_lines(address: str, topic: str) -> None:
    with Admin(address) as admin:
        admin.alter_topic(topic, set_configs={"max.message.bytes": "300"})
    lines = b"".join(b"line %d\n" % number for number in range(3000))
    output_of("produce", topic, "--broker", address, "--partition", "0", stdin=lines)
    assert output_of("consume", topic, "--broker", address, "--until-end") == lines


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("produce", "nowhere"), "nowhere"),
        (("consume", "nowhere"), "nowhere"),
        (("produce", "TOPIC", "--partition", "9"), "partition 9"),
        (("consume", "TOPIC", "--partition", "9"), "partition 9"),
        (("consume", "TOPIC", "--from", "100"), "100"),
        (("produce", "TOPIC", "--format", "csv", "--key-column", "k"), "the input is empty"),
    ],
)
def test_what_cannot_be_done_is_one_line(address: str, topic: str, arguments: tuple[str, ...], complaint: str) -> None:
    named = [topic if argument == "TOPIC" else argument for argument in arguments]
    stdin = b"" if "csv" in named else b"x\n"
    assert complaint in failure_of(*named, "--broker", address, stdin=stdin)


def test_a_topic_that_does_not_exist_is_told_without_any_record(address: str) -> None:
    assert "nowhere" in failure_of("produce", "nowhere", "--broker", address)


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(
    "arguments",
    [
        ("produce", "t", "--key-column", "k"),
        ("produce", "t", "--format", "csv", "--key-separator", ":"),
        ("produce", "t", "--key-separator", ""),
        ("produce", "t", "--format", "xml"),
        ("produce", "t", "--partition", "-1"),
        ("consume", "t", "--from", "yesterday"),
        ("consume", "t", "--max-records", "0"),
    ],
)
def test_a_wrong_call_exits_with_2(arguments: tuple[str, ...]) -> None:
    assert logbroker(*arguments).returncode == 2


@pytest.mark.prove
def test_where_to_begin_and_where_to_stop(address: str, topic: str) -> None:
    lines = "".join(json.dumps({"value": str(n), "partition": n % 2, "timestamp": 1000 * n}) + "\n" for n in range(20))
    output_of("produce", topic, "--broker", address, "--format", "json", stdin=lines.encode())

    def values(*options: str) -> list[int]:
        return sorted(int(record["value"]) for record in consumed(address, topic, *options))

    assert values() == list(range(20))
    assert values("--partition", "1") == list(range(1, 20, 2))
    assert values("--partition", "0", "--partition", "1", "--from", "8") == [16, 17, 18, 19]
    assert values("--from", "latest") == []
    assert values("--from", "1970-01-01T00:00:15Z") == [15, 16, 17, 18, 19]
    assert values("--partition", "0", "--max-records", "3") == [0, 2, 4]


@pytest.mark.prove
def test_a_policy_says_where_to_go_on_and_none_is_said(address: str, topic: str) -> None:
    output_of("produce", topic, "--broker", address, "--partition", "0", stdin=b"one\ntwo\n")
    beyond = ("consume", topic, "--broker", address, "--partition", "0", "--from", "7", "--until-end")
    group = ("consume", topic, "--broker", address, "--group", f"g-{topic}", "--until-end", "--auto-offset-reset")
    assert "holds offsets 0 to 2, not 7" in failure_of(*beyond)
    assert output_of(*beyond, "--auto-offset-reset", "earliest") == b"one\ntwo\n"
    assert output_of(*beyond, "--auto-offset-reset", "latest") == b""
    assert "has committed no offset" in failure_of(*group, "none")
    assert output_of(*group, "by_duration:PT1H") == b"one\ntwo\n"
    assert b"PT1H" in logbroker(*group, "by_duration:1h").stderr


@pytest.mark.prove
def test_consume_writes_records_as_they_come_and_ctrl_c_ends_it(address: str, topic: str) -> None:
    command = [*LOGBROKER, "consume", topic, "--broker", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as reader:
        try:
            output_of("produce", topic, "--broker", address, stdin=b"live\n")
            assert line_of(reader) == b"live\n"
            reader.send_signal(signal.SIGINT)
            _, err = reader.communicate(timeout=30)
        finally:
            reader.kill()
    assert reader.returncode == 130
    assert err.strip() == b""


@pytest.mark.prove
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_says_how_many_records_were_acknowledged(address: str, topic: str, stop: signal.Signals) -> None:
    command = [*LOGBROKER, "produce", topic, "--broker", address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(b"v\n" * 1234)
            process.stdin.flush()
            with Admin(address) as admin:
                until(lambda: sum(each.high_watermark for each in admin.describe_topic(topic).partitions) == 1234)
            process.send_signal(stop)
            assert line_of(process, error=True) == b"logbroker: stopped: 1,234 records were acknowledged\n"
            assert process.wait(30) == 128 + stop
        finally:
            process.kill()


def test_no_broker_is_said(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nowhere = f"127.0.0.1:{free.getsockname()[1]}"
    assert nowhere in failure_of("topic", "list", "--broker", nowhere)


@pytest.mark.prove
def test_produce_rides_out_a_restart(logbroker_broker: EmbeddedBroker) -> None:
    broker = logbroker_broker
    with Admin(broker.address) as admin:
        admin.create_topic("t", 2)
    command = [*LOGBROKER, "produce", "t", "--broker", broker.address, "--key-separator", ":", "--json"]
    lines = (b"%d:%d\n" % (number % 5, number) for number in itertools.count())
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert process.stdin is not None
        try:
            # A command whose broker is not there when it begins says so.
            process.stdin.writelines(itertools.islice(lines, 1000))
            process.stdin.flush()
            output_of("consume", "t", "--broker", broker.address, "--max-records", "1")
            for end in (broker.kill, broker.stop, None):
                process.stdin.writelines(itertools.islice(lines, 5000))
                process.stdin.flush()
                if end is not None:
                    end()
                    process.stdin.writelines(itertools.islice(lines, 1000))
                    broker.start()
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert json.loads(out)["records"] == 18_000
    by_key = defaultdict(list)
    for record in consumed(broker.address, "t"):
        by_key[record["key"]].append(int(record["value"]))
    assert by_key == {str(key): list(range(key, 18_000, 5)) for key in range(5)}


def test_a_member_that_is_given_nothing_says_so_at_the_end(address: str, topic: str) -> None:
    """Else its end looks as if there was nothing to read, while another member that is away holds it all."""
    group = f"g-{uuid.uuid4()}"
    with Producer(address) as producer, Consumer(address, group=group) as other:
        producer.send_and_wait(topic, b"value")
        other.subscribe(topic)
        while not other.assignment():
            other.poll(timeout_seconds=0.1)
        command = ["consume", topic, "--group", group, "--until-end", "--broker", address]
        result = logbroker(*command)
    assert (result.returncode, result.stdout) == (0, b"")
    assert b"this member has no partition of the group" in result.stderr
