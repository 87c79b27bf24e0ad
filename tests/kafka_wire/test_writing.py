"""Messages that cannot be written as they are: the field is named, and nothing is cut, padded or dropped in silence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from logbroker.kafka_wire.messages import fetch, metadata, produce
from logbroker.kafka_wire.primitives import WireFormatError
from tests.kafka_wire.messages import CASES, Case, built, defaults
from tests.kafka_wire.reference import Encoder, Values
from wiregen.definitions import Field, Structure

ALL = pytest.mark.parametrize("case", CASES, ids=str)
WRONG: dict[str, list[Any]] = {
    "int8": [128, -129, 1.0, None],
    "int16": [1 << 15, -(1 << 15) - 1, "1", None],
    "int32": [1 << 31, -(1 << 31) - 1, None],
    "int64": [1 << 63, -(1 << 63) - 1, None],
    "bool": [300, "true", None],
    "uuid": [b"", bytes(15), bytes(17), None],
    "string": ["a" * 32768, "\ud800", None],
    "bytes": [None],
}


def filled(case: Case, version: int, structure: Structure) -> Values:
    """Return values with one element in every array, and with every structure that may be null or is tagged."""
    found = defaults(case.definition, version, structure)
    for each in structure.fields:
        if each.name in found:
            inner = case.definition.structures.get(each.kind)
            element: Any = {"string": "", "int32": 0}.get(each.kind)
            if inner is not None:
                element = filled(case, version, inner)
            if each.is_array:
                found[each.name] = [element]
            elif inner is not None:
                found[each.name] = element
    return found


def places(case: Case, version: int, message: Any, structure: Structure) -> Iterator[tuple[Any, Field]]:
    """Yield every structure of a message with every field that any version has."""
    for each in structure.fields:
        if any(known in each.versions for known in case.versions):
            yield message, each
        value = getattr(message, each.name, None)
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, msgspec.Struct):
                yield from places(case, version, inner, case.definition.structures[each.kind])


def whole(case: Case, version: int) -> Any:
    return built(case.codec.kind, filled(case, version, case.definition.top))


def refused(case: Case, version: int, message: Any, owner: Any, each: Field) -> None:
    said = f"{case.name} version {version}: {type(owner).__name__}.{each.name} "
    with pytest.raises(WireFormatError, match=re.escape(said)):
        case.codec.write(message, version)


def other_than_default(case: Case, each: Field) -> Any:
    """Return a value for a field as its last version has it."""
    known = [version for version in case.versions if version in each.versions][-1]
    if not each.is_structure:
        value = {"string": "x", "bytes": b"x", "bool": each.default != "true", "uuid": bytes(range(16))}.get(
            each.kind, 7
        )
        return [value] if each.is_array else value
    found = places(case, known, whole(case, known), case.definition.top)
    value = next(getattr(owner, each.name) for owner, field in found if field is each)
    if not each.is_array:
        setattr(value, next(name for name in value.__struct_fields__ if isinstance(getattr(value, name), int)), 5)
    return value


@ALL
def test_a_value_that_does_not_fit_is_refused_by_its_name(case: Case) -> None:
    for version in case.some_versions:
        message = whole(case, version)
        good = case.codec.write(message, version)
        for owner, each in places(case, version, message, case.definition.top):
            if version not in each.versions:
                continue
            kept = getattr(owner, each.name)
            wrongs: list[Any] = [None] if each.is_array or each.is_structure else WRONG.get(each.kind, [])
            for wrong in wrongs:
                if wrong is None and (
                    version in each.nullable_versions or (each.is_structure and version in each.tagged_versions)
                ):
                    continue
                setattr(owner, each.name, wrong)
                refused(case, version, message, owner, each)
            if each.is_array and not each.is_structure:
                setattr(owner, each.name, {"string": ["", "a" * 32768], "int32": [0, 1 << 31]}[each.kind])
                refused(case, version, message, owner, each)
            setattr(owner, each.name, kept)
        assert case.codec.write(message, version) == good


@ALL
def test_a_field_that_the_version_lacks_is_refused_unless_it_may_be_ignored(case: Case) -> None:
    for version in case.versions:
        message = whole(case, version)
        good = case.codec.write(message, version)
        for owner, each in places(case, version, message, case.definition.top):
            if version in each.versions:
                continue
            kept = getattr(owner, each.name)
            value = other_than_default(case, each)
            setattr(owner, each.name, value)
            if each.is_ignorable:
                assert case.codec.write(message, version) == good
            else:
                refused(case, version, message, owner, each)
            setattr(owner, each.name, kept)


def test_a_null_that_only_some_versions_know_is_refused_by_the_others() -> None:
    message = metadata.MetadataRequest(topics=None, allow_auto_topic_creation=True)
    assert metadata.REQUEST.write(message, 1) == b"\xff\xff\xff\xff"
    with pytest.raises(WireFormatError, match=r"MetadataRequest version 0: MetadataRequest\.topics is null"):
        metadata.REQUEST.write(message, 0)


def test_a_version_that_is_not_there_is_refused() -> None:
    with pytest.raises(WireFormatError, match="ProduceRequest has versions 3 to 13, not 2"):
        produce.REQUEST.write(produce.ProduceRequest(), 2)
    with pytest.raises(WireFormatError, match="ProduceRequest has versions 3 to 13, not 14"):
        produce.REQUEST.read(b"", 14)


def test_records_are_not_copied() -> None:
    small, large = b"s" * 10, bytes(100_000)
    kinds: list[bytes | memoryview] = [small, large, small, memoryview(large)]
    partitions = [
        fetch.FetchResponsePartitionData(partition_index=index, records=records) for index, records in enumerate(kinds)
    ]
    message = fetch.FetchResponse(responses=[fetch.FetchResponseFetchableTopic(topic="t", partitions=partitions)])
    for version in (11, 12):
        parts = fetch.RESPONSE.write_parts(message, version, head=b"head")
        assert [len(part) == len(large) for part in parts[:4]] == [False, True, False, True]
        assert (parts[1], parts[3]) == (large, partitions[3].records)
        assert parts[1] is large
        assert parts[3] is partitions[3].records
        assert b"".join(parts) == b"head" + fetch.RESPONSE.write(message, version)
        wire = fetch.RESPONSE.write(message, version)
        for partition in fetch.RESPONSE.read(wire, version).responses[0].partitions:
            assert isinstance(partition.records, memoryview)
            assert partition.records.obj is wire


def test_a_message_without_records_is_one_part() -> None:
    assert metadata.REQUEST.write_parts(metadata.MetadataRequest(topics=None), 1, head=b"head") == [
        b"head\xff\xff\xff\xff"
    ]


@pytest.mark.parametrize("case", [case for case in CASES if case.definition.flexible_versions], ids=str)
def test_a_tagged_structure_of_defaults_is_not_sent(case: Case) -> None:
    version = case.versions[-1]
    least = defaults(case.definition, version, case.definition.top)
    message = built(case.codec.kind, least)
    for each in case.definition.top.fields:
        if version in each.tagged_versions and each.is_structure and not each.is_array:
            setattr(message, each.name, getattr(whole(case, version), each.name))
    assert case.codec.write(message, version) == Encoder(case.definition, version).encode(least)
