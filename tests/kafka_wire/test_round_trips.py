"""Every message in every version: written as the definitions say, byte for byte, and read back as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.kafka_wire.primitives import WireFormatError
from tests.kafka_wire.messages import CASES, Case, built, plain, tries, values
from tests.kafka_wire.reference import Encoder, Values

ALL = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def drawn(data: st.DataObject, case: Case) -> list[tuple[int, Values, Any, bytes]]:
    """Return for every version values, the message of them, and its bytes as the definitions have them."""
    found = []
    for version in case.versions:
        plain_values = data.draw(values(case.definition, version))
        wire = Encoder(case.definition, version).encode(plain_values)
        found.append((version, plain_values, built(case.codec.kind, plain_values), wire))
    return found


@pytest.mark.prove(keep=3)
@pytest.mark.twice
@ALL
@given(data=st.data())
@tries(2, 40)
def test_a_message_is_written_as_defined_and_read_back(case: Case, data: st.DataObject) -> None:
    for version, plain_values, message, wire in drawn(data, case):
        assert case.codec.write(message, version) == wire
        read = case.codec.read(wire, version)
        assert read == message
        assert plain(read, plain_values) == plain_values
        for buffer in (bytearray(wire), memoryview(wire)):
            assert case.codec.read(buffer, version) == message
        shifted, stop = case.codec.read_part(b"\xff\xff" + wire + b"\xff", version, 2)
        assert (shifted, stop) == (message, 2 + len(wire))


@pytest.mark.twice
@ALL
@given(data=st.data())
@tries(1, 30)
def test_unknown_tagged_fields_are_skipped_in_every_structure(case: Case, data: st.DataObject) -> None:
    for version, plain_values, message, _ in drawn(data, case):
        if version in case.definition.flexible_versions:
            tags = data.draw(st.lists(st.binary(max_size=200), min_size=1, max_size=3))
            wire = Encoder(case.definition, version, unknown_tags=tags).encode(plain_values)
            assert case.codec.read(wire, version) == message


@pytest.mark.twice
@ALL
@given(data=st.data())
@tries(1, 20)
def test_a_message_is_neither_shorter_nor_longer(case: Case, data: st.DataObject) -> None:
    for version, _, _, wire in drawn(data, case):
        for end in {*range(0, len(wire), len(wire) // 64 + 1), *range(max(len(wire) - 40, 0), len(wire))}:
            with pytest.raises(WireFormatError, match=f"{case.name} version {version}: "):
                case.codec.read(wire[:end], version)
        with pytest.raises(WireFormatError, match="1 bytes follow the message"):
            case.codec.read(wire + b"\0", version)
