"""`logbroker demo`: it works, and it would say so if it did not."""

from __future__ import annotations

import json

import pytest

from logbroker.cli.demo import check_order
from logbroker.cli.input_formats import InputRecord
from logbroker.client import Record
from logbroker.errors import LogbrokerError
from tests.cli.command import output_of


def test_all_flights_come_back_and_a_table_tells_of_them() -> None:
    out = output_of("demo").decode()
    for words in ("27,004", "3,149 aircraft", "records/s", "partition"):
        assert words in out


def test_programs_get_json() -> None:
    outcome = json.loads(output_of("demo", "--json"))
    assert outcome["records"] == sum(outcome["partition_records"]) == 27_004
    assert len(outcome["partition_bytes"]) == 8


def stored(key: bytes, value: bytes, partition: int = 0) -> Record:
    return Record("flights", partition, 0, 0, key, value, ())


SENT = [InputRecord(b"1", b"A"), InputRecord(b"2", b"B"), InputRecord(b"3", b"A")]


def test_the_order_between_aircraft_is_free() -> None:
    assert check_order(SENT, [stored(b"B", b"2", 1), stored(b"A", b"1"), stored(b"A", b"3")]) == 2


@pytest.mark.parametrize(
    ("received", "complaint"),
    [
        ([stored(b"A", b"1"), stored(b"B", b"2")], "of aircraft A, 2 flights went in, 1 came out"),
        ([stored(b"A", b"3"), stored(b"A", b"1"), stored(b"B", b"2")], "aircraft A came out in another order"),
        (
            [stored(b"A", b"1"), stored(b"A", b"x"), stored(b"B", b"2")],
            "aircraft A came out in another order or altered",
        ),
        ([stored(b"A", b"1"), stored(b"A", b"3", 1), stored(b"B", b"2")], "aircraft A lie in several partitions"),
        ([stored(b"C", b"9"), stored(b"A", b"1"), stored(b"A", b"3"), stored(b"B", b"2")], "of aircraft C, 0 flights"),
    ],
)
def test_what_is_missing_altered_or_misplaced_is_found(received: list[Record], complaint: str) -> None:
    with pytest.raises(LogbrokerError, match=complaint):
        check_order(SENT, received)
