"""Bytes that are no message: one kind of error, whatever they are, and no more memory than a multiple of their size."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from logbroker.kafka_wire.messages import fetch, headers
from logbroker.kafka_wire.primitives import WireFormatError
from tests.kafka_wire.messages import CASES, Case, defaults
from tests.kafka_wire.reference import Encoder, Values
from tests.speeds import examples
from wiregen.definitions import Structure

MEMORY_FACTOR: Final = 40
"""The most that a message takes in memory for each of its bytes: small structures whose fields are all at hand."""
SPARE_BYTES: Final = 32 * 1024
LIES: Final = (-1, -2, (1 << 15) - 1, (1 << 31) - 2, (1 << 31) + 0x7FFF, (1 << 32) - 2)
"""Numbers that are too large or negative, in two bytes, in four, and as varints. The first is a null."""
ALL: Final = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Trace memory, so that `read_or_refused` can look at it."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def read_or_refused(case: Case, version: int, wire: bytes) -> bool:
    """Read bytes, and return whether they are a message. No other error, and no more memory, may come of them."""
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    refusal = ""
    try:
        case.codec.read(wire, version)
    except WireFormatError as error:
        refusal = error.message
    _, peak = tracemalloc.get_traced_memory()
    assert peak - before <= MEMORY_FACTOR * len(wire) + SPARE_BYTES, (case.name, version, len(wire), peak - before)
    assert not refusal or refusal.startswith(f"{case.name} version {version}: "), refusal
    return not refusal


def crowded(case: Case, version: int, structure: Structure, count: int, *, every: bool = False) -> Values:
    """Return values with so many of the least elements in each array, or only in those of the outermost structure."""
    found = defaults(case.definition, version, structure)
    for each in structure.fields:
        if each.name not in found:
            continue
        inner = case.definition.structures.get(each.kind)
        if each.is_array:
            element: Any = "" if each.kind == "string" else 0
            if inner is not None:
                element = (
                    crowded(case, version, inner, count, every=every)
                    if every
                    else defaults(case.definition, version, inner)
                )
            found[each.name] = [element] * count
        elif inner is not None and version not in each.tagged_versions:
            found[each.name] = crowded(case, version, inner, count, every=every)
    return found


@pytest.mark.prove(keep=3)
@pytest.mark.twice
@ALL
def test_a_lie_in_any_length_or_count_is_found(case: Case) -> None:
    with bounded_memory():
        for version in case.some_versions:
            values = crowded(case, version, case.definition.top, 1, every=True)
            tags = [b"ab"] if version in case.definition.flexible_versions else []
            honest = Encoder(case.definition, version, unknown_tags=tags)
            honest_wire = honest.encode(values)
            assert read_or_refused(case, version, honest_wire)
            for place in range(honest.places):
                for lie in LIES:
                    liar = Encoder(case.definition, version, unknown_tags=tags, lies={place: lie})
                    wire = liar.encode(values)
                    is_message = read_or_refused(case, version, wire)
                    assert not is_message or wire == honest_wire or lie == -1, (version, place, lie)


@pytest.mark.prove(keep=3)
@pytest.mark.twice
@ALL
def test_the_memory_of_small_elements_is_bounded(case: Case) -> None:
    with bounded_memory():
        for version in case.some_versions:
            values = crowded(case, version, case.definition.top, examples(150, 1000))
            assert read_or_refused(case, version, Encoder(case.definition, version).encode(values))


@pytest.mark.parametrize("case", [case for case in CASES if case.definition.flexible_versions], ids=str)
def test_tags_out_of_order_and_tags_twice_are_refused(case: Case) -> None:
    version = case.versions[-1]
    wire = Encoder(case.definition, version).encode(defaults(case.definition, version, case.definition.top))
    assert wire[-1] == 0
    for tags, is_message in (
        (b"\x02\x64\x00\x65\x01x", True),
        (b"\x02\x65\x00\x64\x01x", False),
        (b"\x02\x64\x00\x64\x01x", False),
        (b"\x02\x64\x00", False),
        (b"\x01\x64\x02x", False),
        (b"\xff\xff\xff\xff\x0f\x64\x00", False),
        (b"\x80\x80\x80\x80\x80\x00", False),
        (b"\xff\xff\xff\xff\x1f", False),
        (b"\x80\x00", True),
    ):
        with bounded_memory():
            assert read_or_refused(case, version, wire[:-1] + tags) is is_message, tags


def test_a_known_tagged_field_takes_exactly_its_size() -> None:
    head = "000001f4 00000001 7fffffff 00 00000000 00000000 01 01 01 01 01"
    for size, value, fault in (
        ("0d", "", ""),
        ("0e", "00", "ends 1 bytes before its size"),
        ("0c", "", "only 12 are left"),
    ):
        wire = bytes.fromhex(f"{head} {size} 00000003 0000000000000004 00 {value}")
        if fault:
            with pytest.raises(WireFormatError, match=fault):
                fetch.REQUEST.read(wire, 15)
        else:
            assert fetch.REQUEST.read(wire, 15).replica_state == fetch.FetchRequestReplicaState(
                replica_id=3, replica_epoch=4
            )


def test_a_string_does_not_go_beyond_the_end() -> None:
    with pytest.raises(WireFormatError, match=r"client_id takes 3 bytes, but only 2 are left"):
        headers.REQUEST_HEADER.read_part(bytes.fromhex("0012 0000 00000007 0003 6d65"), 1)


def well_formed(case: Case, version: int) -> bytes:
    """Return a message with two elements in every array."""
    return Encoder(case.definition, version).encode(crowded(case, version, case.definition.top, 2, every=True))


def mutant(rng: random.Random, wire: bytes) -> bytes:
    """Return damaged bytes: cut, flipped, overwritten, swapped, or with a part twice."""
    changed = bytearray(wire)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(6):
            case 0:
                del changed[at:]
            case 1 if changed:
                changed[at % len(changed)] ^= 1 << rng.randrange(8)
            case 2:
                changed[at : at + 4] = rng.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4), b"\x80\0\0\0"))
            case 3:
                changed[at:at] = rng.randbytes(rng.randrange(6))
            case 4:
                changed[at:at] = changed[max(at - rng.randrange(40), 0) : at]
            case _:
                changed[at : at + 5] = rng.choice((b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0f", b"\x80" * 5))
    return bytes(changed)


@pytest.mark.twice
def test_random_and_damaged_bytes_are_refused_or_read() -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    seeds = [(case, version, well_formed(case, version)) for case in CASES for version in case.versions]
    read = 0
    with bounded_memory():
        for number in range(examples(3_000, 100_000)):
            case, version, wire = seeds[number % len(seeds)] if number < len(seeds) else rng.choice(seeds)
            bad = rng.randbytes(rng.randrange(300)) if rng.random() < 0.2 else mutant(rng, wire)
            try:
                read += read_or_refused(case, version, bad)
            except Exception as error:
                raise AssertionError(f"seed {seed}, example {number}: {case}, version {version}, {bad!r}") from error
    assert read > 0
