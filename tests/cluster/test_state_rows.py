"""The rows of the state topic: replay gives what was committed, and ignores who had lost the partition."""

from __future__ import annotations

import random

import pytest

from logbroker.broker.cluster_engine.state.state_rows import CLAIM_KEY, StateRows, records_of
from logbroker.engine import StateEvent
from logbroker.errors import CorruptLogError, InvalidRequestError
from logbroker.record.codec import NewRecord, encode_batch, split_batches, with_producer


def replay(rows: StateRows, writer: tuple[int, int], records: list[NewRecord]) -> None:
    [(header, batch)] = split_batches(with_producer(encode_batch(records), *writer, 0))
    rows.replay(header, batch)


def claim(rows: StateRows, writer: tuple[int, int]) -> None:
    replay(rows, writer, [NewRecord(key=CLAIM_KEY, value=b"gateway")])


def put(rows: StateRows, writer: tuple[int, int], scope: str, **values: bytes | None) -> None:
    replay(rows, writer, records_of(scope, [StateEvent(key.encode(), value) for key, value in values.items()]))


@pytest.mark.parametrize("seed", range(3))
def test_the_last_value_of_each_key_stays_and_scopes_are_apart(seed: int) -> None:
    rng = random.Random(seed)
    rows = StateRows()
    model: dict[tuple[str, bytes], bytes] = {}
    for _ in range(500):
        scope, key = rng.choice(["a", "ab", "b", "ü" * 100]), rng.choice(["k", "kk", "b", "z" * 255])
        value = rng.choice([None, b"", b"x", rng.randbytes(300)])
        put(rows, (7, 0), scope, **{key: value})
        if value is None:
            model.pop((scope, key.encode()), None)
        else:
            model[scope, key.encode()] = value
    for scope in ("a", "ab", "b", "ü" * 100):
        assert rows.of(scope) == {key: value for (of, key), value in model.items() if of == scope}
    assert rows.scopes() == sorted({scope for scope, _ in model})


def test_batches_of_an_earlier_owner_count_up_to_the_next_claim_only() -> None:
    rows = StateRows()
    claim(rows, (7, 0))
    put(rows, (7, 0), "g", a=b"1", b=b"1")
    claim(rows, (7, 1))
    put(rows, (7, 0), "g", a=b"stale")
    put(rows, (7, 1), "g", b=b"2")
    # The epochs of the producer id have run out: another id claims.
    claim(rows, (9, 0))
    put(rows, (7, 1), "g", b=b"stale")
    assert rows.of("g") == {b"a": b"1", b"b": b"2"}


def test_rows_whose_claim_was_compacted_away_count() -> None:
    rows = StateRows()
    put(rows, (7, 0), "g", a=b"1")
    put(rows, (7, 3), "g", b=b"2")
    claim(rows, (7, 4))
    assert rows.of("g") == {b"a": b"1", b"b": b"2"}


def test_a_record_that_is_no_row_is_damage() -> None:
    rows = StateRows()
    for key in (None, b"", b"\x05abc", b"\x01a"):
        with pytest.raises(CorruptLogError):
            replay(rows, (7, 0), [NewRecord(key=key, value=b"x")])


@pytest.mark.parametrize(("scope", "key"), [("", b"k"), ("s" * 256, b"k"), ("s", b""), ("s", b"k" * 256)])
def test_names_out_of_bounds_are_refused(scope: str, key: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        records_of(scope, [StateEvent(key, b"x")])
