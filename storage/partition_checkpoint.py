"""Checkpoints of a partition in the metadata store: one row for the partition, and one for each producer that it
remembers.

A checkpoint writes only the rows of producers that appended since the previous checkpoint.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from logbroker.config import MAX_INT64
from logbroker.errors import unreadable_row
from logbroker.storage.metadata.metadata_store import Write
from logbroker.storage.partition_files import EpochStart
from logbroker.storage.producer_state import ProducerBatch, ProducerSnapshot, ProducerStates
from logbroker.storage.segment import Segment
from logbroker.storage.system_calls import sysctl_text

PARTITIONS: Final = "partitions"
PRODUCERS: Final = "producers"

_PRODUCER_ID_BYTES: Final = 8
_PRODUCER_KEY_BYTES: Final = 16 + 4 + _PRODUCER_ID_BYTES
_Batches = tuple[ProducerBatch, ...]
_decode_batches: Final = msgspec.msgpack.Decoder(_Batches).decode

BROKER: Final = "broker"
"""Table for the broker as a whole."""
CLEAN_STOP: Final = b"clean-stop"
"""Key of the row which says that the last run synced everything before it stopped. There is no such row while a broker
takes appends."""
_BOOT_ID_PATH: Final = Path("/proc/sys/kernel/random/boot_id")


class SegmentCheckpoint(msgspec.Struct, gc=False, array_like=True):
    """The checkpoint of a segment that begins at or below the recovery point."""

    base_offset: int
    size_bytes: int
    """Size of the part below the recovery point."""
    max_timestamp_ms: int
    """Upper bound of its records' timestamps; -1: no record has one."""
    first_crc: int = -1
    """CRC of its first batch, which reveals a file of another partition; -1: not known."""


class PartitionCheckpoint(msgspec.Struct, gc=False, omit_defaults=True):
    """A checkpoint. With it, a later open need not read anything below the recovery point."""

    recovery_point: int
    """Offset below which every record is synced."""
    log_start_offset: int
    segments: list[SegmentCheckpoint]
    """Segments below the recovery point, in order; the recovery point is in the last one."""
    producers: list[ProducerSnapshot] = msgspec.field(default_factory=list, name="changed_producers")
    """Producers at the recovery point: after loading, all producers; otherwise producers that appended since the
    previous checkpoint."""
    forgotten_producers: list[int] = []
    """Ids of producers that were forgotten since the previous checkpoint, even if only for a while."""
    forgotten_below: int = 0
    """Number above the ids of all producers that were ever forgotten."""
    old_producers: list[tuple[int, int, _Batches]] = msgspec.field(default_factory=list, name="producers")
    """All producers, in rows of older brokers, which wrote no separate rows for producers: id, an unused time,
    batches."""
    boot_id: str = ""
    """Boot id of the computer when the checkpoint was made. If it differs from the current one, a power cut may have
    taken unsynced bytes."""
    epochs: list[EpochStart] = []
    """The first entries of the file of leader epochs: those that begin below the recovery point. They are stored here,
    too, because the file has no checksum."""
    unsynced_bound_bytes: int = -1
    """Maximum bytes at the log's end that are unsynced at any time until the next checkpoint; -1: no limit."""
    gaps_below: int = 0
    """Offset below which batches may leave gaps before them: another program wrote them, or a repair accepted missing
    records. 0: there are no gaps."""
    history_unknown: bool = False
    """Whether it is unknown how often the broker or the computer has stopped since the checkpoint: the row comes from a
    restored backup, or a start has refused the partition. Damage after the recovery point is then not explained by a
    power cut."""
    given_up: list[SegmentCheckpoint] = []
    """Segments that a repair gave up at or after the log start offset, as they were known before. They tell whether a
    file that is found later is one of them."""


def epochs_unknown_below(checkpoint: PartitionCheckpoint, epochs: Sequence[EpochStart]) -> list[EpochStart]:
    """Return the epochs in a file that cannot come from a broker: they begin below the recovery point, but are not in
    the checkpoint, which has all epochs that begin there.

    At the recovery point or above it, a recovery may have begun an epoch and never stored a checkpoint for it. A
    checkpoint without epochs comes from an older broker, or is for files that another program wrote; it says nothing
    about epochs.
    """
    if not checkpoint.epochs:
        return []
    return [entry for entry in epochs[len(checkpoint.epochs) :] if entry.start_offset < checkpoint.recovery_point]


def power_cut_may_have_taken_metadata(checkpoint: PartitionCheckpoint, content: bytes) -> bool:
    """Return whether a power cut may explain that partition.metadata is missing or cannot be read: it is synced with
    the first records. A start then writes it anew. `content` is what the file has, b"" if it is missing."""
    return not checkpoint.recovery_point and not (content and is_of_this_boot(checkpoint))


def encode_checkpoint(key: bytes, checkpoint: PartitionCheckpoint) -> list[Write]:
    """Return the rows of a checkpoint, under the key of its partition."""
    encode = msgspec.msgpack.encode
    row = msgspec.structs.replace(checkpoint, producers=[], forgotten_producers=[], old_producers=[])
    writes: list[Write] = [(PARTITIONS, key, encode(row))]
    # A producer that was forgotten and came back is in both lists.
    writes += [(PRODUCERS, _producer_key(key, producer_id), None) for producer_id in checkpoint.forgotten_producers]
    for producer in checkpoint.producers:
        writes.append((PRODUCERS, _producer_key(key, producer.producer_id), encode(producer.batches)))
    return writes


def decode_checkpoint(
    key: bytes, row: bytes, producers: Iterable[ProducerSnapshot] = ()
) -> tuple[PartitionCheckpoint, bool]:
    """Return the checkpoint in a partition's row, with `producers`, which come from separate rows.

    Also return whether the rows of the producers belong to this checkpoint. They do not if an older broker wrote it, or
    if the recovery point was lowered by hand: then all producers must be stored again. Raises CorruptLogError.
    """
    checkpoint = decode_partition(key, row)
    old = [ProducerSnapshot(producer_id, batches) for producer_id, _, batches in checkpoint.old_producers]
    found = old or list(producers)
    checkpoint.old_producers = []
    checkpoint.producers = ProducerStates(found).snapshot(checkpoint.recovery_point)
    is_current = not old and all(producer.batches[-1].next_offset <= checkpoint.recovery_point for producer in found)
    return checkpoint, is_current


def decode_partition(key: bytes, row: bytes) -> PartitionCheckpoint:
    """Return the checkpoint in a partition's row, without the producers. Raises CorruptLogError."""
    try:
        checkpoint = msgspec.msgpack.decode(row, type=PartitionCheckpoint)
    except msgspec.MsgspecError as error:
        raise unreadable_row(PARTITIONS, key, error) from None
    offsets = [checkpoint.recovery_point, checkpoint.log_start_offset]
    entries = [*checkpoint.segments, *checkpoint.given_up]
    offsets += [number for entry in entries for number in (entry.base_offset, entry.size_bytes)]
    if min(offsets) < 0 or max(offsets) > MAX_INT64:
        raise unreadable_row(PARTITIONS, key, f"its offsets and sizes range from {min(offsets)} to {max(offsets)}")
    if not all(batches for _, _, batches in checkpoint.old_producers):
        raise unreadable_row(PARTITIONS, key, "it names a producer without a batch")
    return checkpoint


def with_unknown_history(row: bytes) -> bytes:
    """Return a partition's row with its history marked as unknown."""
    checkpoint = msgspec.msgpack.decode(row, type=PartitionCheckpoint)
    return msgspec.msgpack.encode(msgspec.structs.replace(checkpoint, history_unknown=True))


def decode_producers(rows: Iterable[tuple[bytes, bytes]]) -> dict[bytes, list[ProducerSnapshot]]:
    """Return the producers in rows, by the keys of their partitions. Other rows are skipped.

    Raises CorruptLogError.
    """
    found: dict[bytes, list[ProducerSnapshot]] = {}
    for key, value in rows:
        if len(key) == _PRODUCER_KEY_BYTES:
            try:
                batches = _decode_batches(value)
            except msgspec.MsgspecError as error:
                raise unreadable_row(PRODUCERS, key, error) from None
            if not batches:
                raise unreadable_row(PRODUCERS, key, "it names no batch")
            producer = ProducerSnapshot(int.from_bytes(key[-_PRODUCER_ID_BYTES:], "big"), batches)
            found.setdefault(key[:-_PRODUCER_ID_BYTES], []).append(producer)
    return found


def _producer_key(key: bytes, producer_id: int) -> bytes:
    return key + producer_id.to_bytes(_PRODUCER_ID_BYTES, "big")


def segment_checkpoints(
    segments: Sequence[Segment], synced_segment: Segment | None, synced_position: int, max_timestamp_ms: int
) -> list[SegmentCheckpoint]:
    """Return the checkpoints of the segments up to `synced_segment`, which holds the synced end. If it is None, nothing
    is synced.

    `max_timestamp_ms` is the largest timestamp in `synced_segment` up to `synced_position`; later records of the
    segment may have larger timestamps.
    """
    known = segments[: segments.index(synced_segment) + 1] if synced_segment else ()
    rows = [
        SegmentCheckpoint(segment.base_offset, segment.size_bytes, segment.max_timestamp_ms, segment.first_crc)
        for segment in known
    ]
    if rows:
        rows[-1].size_bytes = synced_position
        rows[-1].max_timestamp_ms = max_timestamp_ms
        if not synced_position:
            rows[-1].first_crc = -1  # A crash may remove the batch, and another batch may replace it.
    return rows


def is_of_this_boot(checkpoint: PartitionCheckpoint) -> bool:
    """Return whether the computer has not stopped since the checkpoint; False if this is not known."""
    return bool(checkpoint.boot_id) and checkpoint.boot_id == boot_id()


@functools.cache
def boot_id() -> str:
    """Return a text that changes with every start of the computer, or "" if the system has none: then every crash
    counts as a power cut."""
    try:
        return _BOOT_ID_PATH.read_text(encoding="ascii").strip()
    except OSError:
        return sysctl_text("kern.bootsessionuuid")  # macOS.
