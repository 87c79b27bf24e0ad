"""The codec beside two libraries that others wrote: kio and kafka-python read what it writes, and the reverse.

Both trust the bytes that they are given, so they are given valid messages only.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import re
import uuid
import warnings
from functools import cache
from typing import Any, Final

import kio.index
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from logbroker.kafka_wire.apis import APIS
from tests.kafka_wire.messages import CASES, Case, built, tries, values
from tests.kafka_wire.reference import Values, default_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # It reads its own files in an old way.
    from kafka.protocol import admin, consumer, metadata, producer, sasl
from wiregen.definitions import Field, Structure

# --- kafka-python --------------------------------------------------------------------------------------------------

_ROOMS: Final = (admin, consumer, metadata, producer, sasl)
_NOT_THERE: Final = {"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"}
OPERATIONS: Final = "authorized_operations"
"""They have a name and a type of their own for this field in most messages: a set of bits."""
KAFKA_PYTHON: Final = [
    case
    for case in CASES
    if case.definition.api_key is not None and APIS[case.definition.api_key].name not in _NOT_THERE
]


def kafka_python_class(case: Case) -> Any:
    (found,) = {getattr(room, case.name) for room in _ROOMS if hasattr(room, case.name)}
    return found


def kafka_python_object(kind: Any, case: Case, structure: Structure, version: int, plain: Values) -> Any:
    """Make a message of kafka-python's, which takes a tagged field as one to send even if it is the default."""
    given: Values = {}
    for each in structure.fields:
        if each.name not in plain or (version in each.tagged_versions and plain[each.name] == default_of(each)):
            continue
        value = plain[each.name]
        if each.is_structure and value is not None:
            inner, of = kind._struct.fields[each.name].data_class, case.definition.structures[each.kind]
            if each.is_array:
                value = [kafka_python_object(inner, case, of, version, one) for one in value]
            else:
                value = kafka_python_object(inner, case, of, version, value)
        if each.name not in kind._struct.fields or each.name == OPERATIONS:
            given[OPERATIONS] = {bit for bit in range(32) if value >> bit & 1}
        else:
            given[each.name] = uuid.UUID(bytes=value) if each.kind == "uuid" else value
    return kind(version=version, **given)


@pytest.mark.prove(keep=3)
@pytest.mark.twice
@pytest.mark.parametrize("case", KAFKA_PYTHON, ids=lambda case: case.name)
@given(data=st.data())
@tries(1, 40)
def test_kafka_python_reads_and_writes_the_same(case: Case, data: st.DataObject) -> None:
    kind = kafka_python_class(case)
    shared = [version for version in case.versions if version <= kind.max_version]
    assert len(shared) >= len(case.versions) - 1
    for version in shared:
        plain = data.draw(values(case.definition, version))
        message = built(case.codec.kind, plain)
        theirs = kafka_python_object(kind, case, case.definition.top, version, plain)
        wire = theirs.encode(version=version)
        assert case.codec.write(message, version) == wire
        assert case.codec.read(wire, version) == message
        if case.name == "ApiVersionsResponse" and plain["error_code"]:
            continue  # They take every error for one in version 0.
        decoded = kind.decode(case.codec.write(message, version), version=version)
        decoded._header = None  # A decoded message of theirs cannot be encoded without.
        assert decoded.encode(version=version) == wire


# --- kio -----------------------------------------------------------------------------------------------------------


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@cache
def kio_class(name: str, version: int) -> Any:
    """Return kio's class of a message; None if it does not know the version."""
    room, kind = snake(name), EntityType.header if name.endswith("Header") else EntityType.data
    if name.endswith(("Request", "Response")):
        room, _, word = room.rpartition("_")
        kind = EntityType[word]
    if version not in schema_name_map[room]:
        return None
    return kio.index.load_entity_schema(room, version, kind)  # type: ignore[arg-type]


def kio_leaf(each: Field) -> st.SearchStrategy[Any] | None:
    """Return values that kio takes: it has types of its own for errors and times."""
    if each.name.endswith("error_code"):
        return st.sampled_from([int(code) for code in ErrorCode])
    if each.kind == "int64" and each.name.endswith(("_ms", "timestamp")):
        return st.integers(0, 1 << 41)
    return None


def same(case: Case, structure: Structure, version: int, plain: Values, entity: Any) -> None:
    """Compare values with a message of kio's, field by field."""
    fields = [each for each in structure.fields if version in each.versions]
    theirs = dataclasses.fields(entity)
    assert len(theirs) == len(fields)
    for each, other in zip(fields, theirs, strict=True):
        assert other.name.strip("_") in (each.name, each.name.removesuffix("_ms")), (each.name, other.name)
        value, found = plain[each.name], getattr(entity, other.name)
        if each.is_structure and value is not None:
            of = case.definition.structures[each.kind]
            assert not each.is_array or len(value) == len(found)
            for ours, one in zip(value, found, strict=True) if each.is_array else [(value, found)]:
                same(case, of, version, ours, one)
        elif not (each.is_structure and version in each.tagged_versions):
            # An id of zeros is None there.
            assert value == (_converted(found) if found is not None or each.kind != "uuid" else bytes(16)), each.name


def _converted(found: Any) -> Any:
    match found:
        case tuple():
            return [_converted(each) for each in found]
        case datetime.timedelta():
            return found // datetime.timedelta(milliseconds=1)
        case datetime.datetime():
            return (found - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(milliseconds=1)
        case uuid.UUID():
            return found.bytes
        case _:
            return found


@pytest.mark.prove(keep=3)
@pytest.mark.twice
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@given(data=st.data())
@tries(1, 40)
def test_kio_reads_and_writes_the_same(case: Case, data: st.DataObject) -> None:
    shared = [version for version in case.versions if kio_class(case.name, version) is not None]
    assert len(shared) >= len(case.versions) - 1
    for version in shared:
        kind = kio_class(case.name, version)
        plain = data.draw(values(case.definition, version, kio_leaf))
        message = built(case.codec.kind, plain)
        wire = case.codec.write(message, version)
        entity, size = entity_reader(kind)(wire, 0)
        assert size == len(wire)
        same(case, case.definition.top, version, plain, entity)
        out = io.BytesIO()
        entity_writer(kind)(out, entity)
        assert out.getvalue() == wire
        assert case.codec.read(out.getvalue(), version) == message


# --- headers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [f"{api.name}{word}" for api in APIS.values() for word in ("Request", "Response")])
def test_headers_have_the_version_that_kio_gives_them(name: str) -> None:
    api = next(api for api in APIS.values() if name in (f"{api.name}Request", f"{api.name}Response"))
    for version in api.versions:
        if (kind := kio_class(name, version)) is not None:
            expected = kind.__header_schema__.__version__
            is_request = name.endswith("Request")
            found = api.request_header_version(version) if is_request else api.response_header_version(version)
            assert found == expected
            assert kind.__api_key__ == api.key
