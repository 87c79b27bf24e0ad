"""Keys must go where every other Kafka client would send them."""

from __future__ import annotations

import warnings

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from logbroker.record.partitioner import PartitionCache, murmur2, partition_for_key

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python still uses importlib.resources.read_text
    from kafka.partitioner.default import murmur2 as kafka_python_murmur2


@given(st.binary(max_size=80))
def test_murmur2_is_that_of_kafka_python_and_aiokafka(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) == aiokafka_murmur2(key)


@given(st.text(max_size=20))
def test_murmur2_of_non_ascii_text(text: str) -> None:
    key = text.encode()
    assert murmur2(key) == kafka_python_murmur2(key)


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_has_the_values_of_kafkas_own_tests(key: bytes, signed: int) -> None:
    """From org.apache.kafka.common.utils.UtilsTest, which counts signed."""
    assert murmur2(key) == signed & 0xFFFF_FFFF


def test_the_empty_key_is_a_key() -> None:
    assert partition_for_key(b"", 7) == (kafka_python_murmur2(b"") & 0x7FFF_FFFF) % 7


@given(st.binary(max_size=40), st.integers(1, 10_000))
def test_the_sign_bit_is_dropped_before_the_modulo(key: bytes, partitions: int) -> None:
    assert partition_for_key(key, partitions) == (kafka_python_murmur2(key) & 0x7FFF_FFFF) % partitions


@given(st.lists(st.binary(max_size=6)), st.integers(1, 50))
def test_the_cache_answers_as_the_function_does_and_stays_bounded(keys: list[bytes], partitions: int) -> None:
    cache = PartitionCache(partitions, max_keys=3, max_key_bytes=4)
    for key in keys:
        assert cache[key] == partition_for_key(key, partitions)
        assert len(cache) <= 3
        assert all(len(kept) <= 4 for kept in cache)
