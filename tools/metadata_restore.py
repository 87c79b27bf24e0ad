"""Replaces a lost or damaged metadata store by a backup.

The backup is older than the logs. An old recovery point is safe: the broker scans more of the log. Other rows would not
be safe, and are changed:
- Producer ids that were handed out since the backup must not be handed out again.
- The producers of queue groups must not continue with sequences that were used since, and their sessions are over.
- The mark of a clean stop is removed.
- Segments that retention has removed since do not count as missing.
- Topics and partitions that were created since get rows again.

Records that are older than the backup cannot be served: bytes that it knows as synced are missing. The plan names their
partitions, which the next start refuses.

The old store is kept, and no partition is changed.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import Final

import msgspec

from logbroker.broker.local_engine.numbers import (
    NEXT_ID_KEY,
    PRODUCER_IDS_PER_MS_BITS,
    number_of_time,
)
from logbroker.broker.local_engine.state_store import STATE, state_key
from logbroker.broker.local_engine.topic_rows import PARTITIONS, TOPICS, decode_topic, encode_topic, partition_row_key
from logbroker.broker.topics import grown, new_topic
from logbroker.command_line import command_line
from logbroker.config import MAX_STORED_BATCH_BYTES, MOST_PARTITIONS, BrokerConfig, TopicConfig, topic_config
from logbroker.engine import Topic
from logbroker.errors import CorruptLogError, DataDirError, LogbrokerError, StorageFailedError, quoted
from logbroker.errors.system import reason_of
from logbroker.group_runtime.group_store import GROUP_SCOPE, GROUPS_SCOPE, listed_types
from logbroker.private_files import DIRECTORY_MODE, remove_directory
from logbroker.queues.model.settings import GROUP_TYPE as QUEUE_GROUP
from logbroker.queues.model.settings import is_dead_letter_topic_name
from logbroker.queues.state.rows import HANDED_ROW, HEADER_ROW, PRODUCER_ROW, SESSION_ROW, decode_header
from logbroker.record.dead_letter import GROUP, ORIGIN_OFFSET, ORIGIN_TOPIC
from logbroker.storage.data_dir import META_NAME, DataDir
from logbroker.storage.files import RealFiles, read_regular, what_is_at
from logbroker.storage.metadata.metadata_store import DATA_NAME, MetadataReader, MetadataStore, Write, is_missing
from logbroker.storage.partition_checkpoint import (
    BROKER,
    CLEAN_STOP,
    PRODUCERS,
    PartitionCheckpoint,
    SegmentCheckpoint,
    decode_partition,
    epochs_unknown_below,
)
from logbroker.storage.partition_files import (
    EPOCHS_NAME,
    METADATA_NAME,
    EpochStart,
    Owner,
    decode_epochs,
    decode_metadata,
)
from logbroker.storage.recovery.rehearsal import why_refused
from logbroker.storage.removal import is_set_aside
from logbroker.tools.metadata_backup import Backup, count_values, extract, free_path, utc_text
from logbroker.tools.segments.locate import file_bytes, has_partition_files, segments_in
from logbroker.tools.segments.log_file import LogFile
from logbroker.tools.segments.mend import give
from logbroker.tools.segments.reading import UNREADABLE, Progress, SegmentReading, records_of
from logbroker.tools.segments.scan import LogScan
from logbroker.types import INTERNAL_PREFIX, TopicId, is_topic_name

_WORK_NAME: Final = "restoring"
_LOCK_NAME: Final = "lock.mdb"
_PARTITION_NAME: Final = re.compile(r"(.+)-(0|[1-9]\d*)", re.DOTALL)
_MAX_NAMES: Final = 5
"""The most partitions that one note names."""
_KEEP_ALL: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""The configs of a topic that is restored from its files only. Its own configs are unknown."""


class RestorePlan(msgspec.Struct, kw_only=True):
    """The changes that restoring a backup makes to a data directory."""

    backup: Backup
    values: dict[str, int]
    """The number of values in the backup, by table."""
    unscanned_bytes: int = 0
    """Bytes above the backup's recovery points. The next start reads and writes them again."""
    store_error: str = ""
    """Why the store that is replaced cannot be read; "" if it can be read, or is missing."""
    notes: list[str] = []
    """The differences between the data directory and its state at the time of the backup."""
    offline: list[str] = []
    """The partitions that will be offline after the next start. `notes` say why."""
    keep_all: list[str] = []
    """The topics whose configs are lost and that keep all records, but for dead-letter topics, which should."""
    gone_groups: dict[str, str] = {}
    """The groups that the backup does not have, and their types, if the store that is replaced can be read."""
    writes: list[Write] = []
    """The changes to the backup's store."""


@contextmanager
def extracted(backup: Backup, data_dir: Path) -> Iterator[Path]:
    """Extract the store of a backup into a directory within `meta`, or beside it if there is no `meta`. Remove the
    directory at the end.

    Keeps brokers out meanwhile. Raises DataDirError if a broker runs or there is no data directory, and OSError.
    """
    if not data_dir.is_dir():
        raise DataDirError(f"there is no data directory {data_dir}")
    held = DataDir.open(data_dir)
    try:
        # `meta` may be on a file system of its own, and a rename cannot leave its file system.
        meta = held.path / META_NAME
        directory = meta / _WORK_NAME if meta.is_dir() else held.path / f"{META_NAME}.{_WORK_NAME}"
        _make_anew(directory)
        try:
            extract(backup, directory)
            yield directory
        finally:
            remove_directory(directory)
    finally:
        held.close()


def _make_anew(directory: Path) -> None:
    """Make the directory for the work, empty. Remove the one of a restore that was killed, but nothing else: raises
    DataDirError if something else is there, and OSError."""
    what = what_is_at(directory, "directory")
    if not what:
        others = set() if not os.path.lexists(directory) else set(os.listdir(directory)) - {DATA_NAME, _LOCK_NAME}
        what = f"it has {min(others)!r} in it, which no restore has made" if others else ""
    if what:
        raise DataDirError(f"cannot use {directory}: {what}; move it away, a restore works in a directory there")
    remove_directory(directory)
    directory.mkdir(DIRECTORY_MODE)


def plan_restore(backup: Backup, store: Path, data_dir: Path, progress: Progress = lambda _bytes: None) -> RestorePlan:
    """Compare a backup, extracted to the directory `store`, with the partitions of a data directory. Writes nothing.

    Reads what the next start will scan. Raises CorruptLogError, DataDirError and OSError.
    """
    plan = RestorePlan(backup=backup, values=count_values(store), store_error=_store_error(data_dir / META_NAME))
    now_ms = time.time_ns() // 1_000_000
    reader = MetadataReader.open(store)
    try:
        row = reader.get(PRODUCERS, NEXT_ID_KEY)
        # This is above any id that was handed out since, however many backups are restored: no broker hands out 2^20
        # ids per millisecond. The broker also uses the file `issued-numbers`.
        next_id = max(int.from_bytes(row or b"", "big"), number_of_time(now_ms, PRODUCER_IDS_PER_MS_BITS))
        plan.writes += [(PRODUCERS, NEXT_ID_KEY, next_id.to_bytes(8, "big")), (BROKER, CLEAN_STOP, None)]
        state = dict(reader.scan(STATE))
        types = _group_types(state)
        group_ids = [group_id for group_id, group_type in types.items() if group_type == QUEUE_GROUP]
        plan.writes += _forgotten(state, group_ids)
        topics = [decode_topic(TopicId(key), value, TopicConfig()) for key, value in reader.scan(TOPICS)]
        rows = dict(reader.scan(PARTITIONS))
        producer_keys = [key for key, _ in reader.scan(PRODUCERS)]
    finally:
        reader.close()
    current = {} if plan.store_error else _current_group_types(data_dir / META_NAME)
    plan.gone_groups = {group_id: group_type for group_id, group_type in current.items() if group_id not in types}
    group_topics = _topics_of(state, group_ids)
    _Comparison(plan, data_dir, rows, producer_keys, group_topics, now_ms, progress).run(topics)
    return plan


def _store_error(meta: Path) -> str:
    """Return why a store cannot be read, "" if it can be read or is missing."""
    try:
        if not is_missing(meta):
            count_values(meta)
    except (LogbrokerError, OSError) as error:
        return str(error)
    return ""


def _group_types(state: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the types of all groups by their ids. Raises CorruptLogError."""
    prefix = state_key(GROUPS_SCOPE, b"")
    return listed_types({key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)})


def _current_group_types(meta: Path) -> dict[str, str]:
    """Return the types of the groups in the store that is replaced, none if they cannot be read."""
    try:
        if is_missing(meta):
            return {}
        reader = MetadataReader.open(meta)
        try:
            return _group_types(dict(reader.scan(STATE)))
        finally:
            reader.close()
    except (LogbrokerError, OSError):
        return {}


def _topics_of(state: Mapping[bytes, bytes], group_ids: Sequence[str]) -> dict[str, TopicId]:
    """Return the ids of the topics of queue groups. Raises CorruptLogError."""
    headers = {group_id: state.get(state_key(GROUP_SCOPE + group_id, HEADER_ROW)) for group_id in group_ids}
    return {group_id: TopicId(decode_header(row).topic_id) for group_id, row in headers.items() if row is not None}


def _forgotten(state: Mapping[bytes, bytes], group_ids: Sequence[str]) -> list[Write]:
    """Return writes that delete the rows from which queue groups must not continue, because their sequences, sessions
    and deliveries since the backup are unknown."""
    forgotten = tuple(
        state_key(GROUP_SCOPE + group_id, kind)
        for group_id in group_ids
        for kind in (PRODUCER_ROW, SESSION_ROW, HANDED_ROW)
    )
    return [(STATE, key, None) for key in state if key.startswith(forgotten)]


def restore(plan: RestorePlan, store: Path, data_dir: Path) -> Path | None:
    """Put the planned store into its place, and return the path of the old store. A crash leaves either the old or the
    new store. The caller is within `extracted`. Raises OSError and StorageFailedError.
    """
    opened = MetadataStore.open(store, on_failure=lambda _failure: None)  # The future raises the error, too.
    try:
        opened.submit(plan.writes).result()
    finally:
        opened.close()
    files, meta = RealFiles(), data_dir / META_NAME
    meta.mkdir(DIRECTORY_MODE, exist_ok=True)
    with suppress(FileNotFoundError):
        (meta / _LOCK_NAME).unlink()  # It has the transactions of the old file.
    for path in (meta, store / DATA_NAME):
        give(str(path), str(data_dir))
    replaced: Path | None = None
    try:
        if (meta / DATA_NAME).exists():
            name = free_path(meta / f"{DATA_NAME}.replaced-{utc_text(time.time_ns() // 1_000_000)}")
            os.link(meta / DATA_NAME, name)
            replaced = name
        files.sync_directory(str(meta))
        files.rename(str(store / DATA_NAME), str(meta / DATA_NAME))
    except BaseException:
        if replaced is not None:
            with suppress(OSError):
                replaced.unlink()  # It is the store that stays in use.
        raise
    try:
        files.sync_directory(str(meta))
        files.sync_directory(str(data_dir))
    except OSError as error:
        kept = "" if replaced is None else f" (the store that was there is kept as {replaced})"
        raise StorageFailedError(
            f"the backup is in its place as {meta / DATA_NAME}{kept}, but the directory cannot be synced:"
            f" {reason_of(error)}; after a power cut, the"
            " store may be the earlier one: check the disk, then restore again"
        ) from error
    return replaced


class _Comparison:
    """Compares the partitions' directories with the backup, and adds the differences to a plan."""

    def __init__(
        self,
        plan: RestorePlan,
        data_dir: Path,
        rows: Mapping[bytes, bytes],
        producer_keys: Sequence[bytes],
        group_topics: Mapping[str, TopicId],
        now_ms: int,
        progress: Progress,
    ) -> None:
        """`group_topics`: the topic of each queue group in the backup."""
        self._plan = plan
        self._data_dir = data_dir
        self._rows = rows
        self._producer_keys = producer_keys
        self._group_topics = group_topics
        self._now_ms = now_ms
        self._progress = progress
        self._found: dict[str, dict[int, TopicId | None]] = {}
        """The topic id that each partition.metadata states, by topic and partition number; None if the file is missing
        or damaged."""
        self._misplaced: dict[str, str] = {}
        """Directories that are ignored, because their names cannot be those of the partitions in them, and why."""
        self._kept: set[TopicId] = set()
        """Topics of the backup that are not deleted."""

    def run(self, topics: list[tuple[Topic, bool]]) -> None:
        """Add all differences to the plan. Raises DataDirError if directories contradict each other."""
        self._look({topic.id: topic.name for topic, deleted in topics if not deleted})
        self._kept = {topic.id for topic, deleted in topics if not deleted}
        # The next start finishes a deletion that was under way.
        going = {topic.id for topic, deleted in topics if deleted}
        for topic, deleted in topics:
            if not deleted:
                self._compare(topic, self._found.pop(topic.name, {}))
        unknown = {
            name: {number: owner for number, owner in partitions.items() if owner not in going}
            for name, partitions in self._found.items()
        }
        self._check_unambiguous(unknown)
        for name, partitions in unknown.items():
            self._adopt(name, partitions)
        for name, why in self._misplaced.items():
            self._note(f"{name}: {why}; its files stay, but are not served")

    def _look(self, topic_names: Mapping[TopicId, str]) -> None:
        """Find the partitions' directories. A directory that somebody has copied or renamed is not taken for a
        partition of a topic."""
        for name in sorted(os.listdir(self._data_dir)):
            match, path = _PARTITION_NAME.fullmatch(name), self._data_dir / name
            if match is None or is_set_aside(name) or not path.is_dir() or not has_partition_files(path):
                continue
            topic_name, number, owner = match[1], int(match[2]), self._owner(name)
            owner_name = topic_name if owner is None else topic_names.get(owner.topic_id, topic_name)
            if owner_name != topic_name:
                place = f"partition {owner.partition} of " if owner is not None and owner.partition >= 0 else ""
                self._misplaced[name] = f"its files are of {place}topic {owner_name}"
            elif owner is not None and owner.partition not in (-1, number):
                self._misplaced[name] = f"its files are of partition {owner.partition}"
            elif number >= MOST_PARTITIONS:
                self._misplaced[name] = f"no topic has a partition {number}"
            elif not is_topic_name(topic_name):
                self._misplaced[name] = f"{quoted(topic_name)} is not a topic name"
            else:
                self._found.setdefault(topic_name, {})[number] = None if owner is None else owner.topic_id

    def _check_unambiguous(self, unknown: Mapping[str, Mapping[int, TopicId | None]]) -> None:
        """Raise DataDirError if directories of two names have the id of one topic that the backup does not know: the
        files do not say the name of their topic."""
        names: dict[TopicId, str] = {}
        for name, partitions in unknown.items():
            for number, owner in partitions.items():
                if owner is not None and names.setdefault(owner, name) != name:
                    other = min(unknown[names[owner]])
                    raise DataDirError(
                        f"{names[owner]}-{other} and {name}-{number} hold the same topic, and the backup does not know"
                        " its name; move the copy out of the data directory, then restore again"
                    )

    def _compare(self, topic: Topic, found: dict[int, TopicId | None]) -> None:
        owners = set(found.values()) - {None}
        if owners and topic.id not in owners:
            self._note(f"{topic.name}: was deleted since the backup, and made anew")
            self._kept.discard(topic.id)
            keys = (partition_row_key(topic.id, number) for number in range(topic.partitions))
            self._plan.writes += [(TOPICS, topic.id, None), *((PARTITIONS, key, None) for key in keys)]
            producers = (key for key in self._producer_keys if key.startswith(topic.id))
            self._plan.writes += [(PRODUCERS, key, None) for key in producers]
            self._found[topic.name] = found  # It is adopted with the others.
            return
        known = topic.partitions
        highest = _highest(found, topic.id)
        if highest >= known:
            ends = [self._end_offset(topic, number) for number in range(known)]
            topic = grown(topic, highest + 1, ends)
            self._note(f"{topic.name}: has grown to {topic.partitions} partitions since the backup")
            self._plan.writes.append((TOPICS, topic.id, encode_topic(topic)))
        self._compare_partitions(topic, found, known)

    def _adopt(self, name: str, found: dict[int, TopicId | None]) -> None:
        """Recreate a topic that the backup does not know."""
        group_id = name.removeprefix(INTERNAL_PREFIX)
        if group_id != name and self._group_topics.get(group_id) not in self._kept:
            # The next start would delete the topic, because copies without a group are those of a deleted group.
            self._note(
                f"queue group {group_id}: is gone (created since the backup, or deleted before it); its copies of "
                f"records that its topic no longer has stay in {_names(name, sorted(found))}, but are not served: move "
                "them out of the data directory before you create the group again"
            )
            return
        owner = _likely_owner(found)
        if owner is None:
            for number in sorted(found):
                self._note(f"{name}-{number}: belongs to no topic of the backup; its files stay, but are not served")
            return
        partitions = _highest(found, owner) + 1
        topic = new_topic(name, owner, partitions, _KEEP_ALL, topic_config(_KEEP_ALL), self._now_ms)
        self._note(
            f"{name}: is found again, with the copies that queue group {group_id} has made since the backup"
            if group_id != name
            else f"{name}: is not in the backup (newer, or deleted before it); it has {topic.partitions} partitions; "
            "its configs (and bands) are lost; retention.ms and retention.bytes of -1 keep all its records"
            + (
                "; if it has grown, groups that read records of before may get those of a key out of order"
                if topic.partitions > 1
                else ""
            )
        )
        if group_id == name and not self._is_of_dead_letters(name, found):
            self._plan.keep_all.append(name)
        self._plan.writes.append((TOPICS, owner, encode_topic(topic)))
        self._compare_partitions(topic, found, known=0)

    def _is_of_dead_letters(self, name: str, partitions: Iterable[int]) -> bool:
        """Return whether a topic holds dead letters, by its name, or else by its first record that can be read."""
        if is_dead_letter_topic_name(name):
            return True
        for number in sorted(partitions):
            with suppress(OSError):
                for segment in segments_in(self._data_dir / f"{name}-{number}"):
                    for batch in SegmentReading(segment, self._progress).batches():
                        with suppress(*UNREADABLE):
                            for record in records_of(batch.plain()):
                                return {GROUP, ORIGIN_TOPIC, ORIGIN_OFFSET} <= {name for name, _ in record.headers}
        return False

    def _compare_partitions(self, topic: Topic, found: Mapping[int, TopicId | None], known: int) -> None:
        """Compare each partition of a topic with its files. The backup has the first `known` partitions."""
        missing: dict[int, PartitionCheckpoint | None] = {}
        unnamed: list[int] = []
        for number in range(topic.partitions):
            checkpoint = self._stored(topic, number)
            if found.get(number, topic.id) not in (topic.id, None):
                self._note_offline(topic, number, "the files are of another topic of this name; they stay as they are")
            elif number in found:
                if number < known:
                    self._compare_partition(topic, number, checkpoint)
                else:
                    self._begin_anew(topic, number)
                    unnamed += [number] * (found[number] is None)
            elif why := self._misplaced.pop(f"{topic.name}-{number}", ""):
                self._note_offline(topic, number, f"{why}; they stay as they are")
            elif why := what_is_at(self._directory(topic, number), "directory"):
                self._note_offline(topic, number, why)
            else:
                missing[number] = checkpoint
        for number in found:
            if number >= topic.partitions:
                self._misplaced[f"{topic.name}-{number}"] = "its files are of another topic of this name"
        if unnamed:
            self._note(
                f"{topic.name}: {METADATA_NAME} of {len(unnamed)} of {topic.partitions} partitions is missing or "
                f"damaged ({_names(topic.name, unnamed)}); the names of the directories say whose they are"
            )
        if missing:
            self._note_missing(topic, missing, is_deleted=not found)

    def _stored(self, topic: Topic, number: int) -> PartitionCheckpoint | None:
        key = partition_row_key(topic.id, number)
        value = self._rows.get(key)
        return decode_partition(key, value) if value is not None else None

    def _note_missing(
        self, topic: Topic, missing: Mapping[int, PartitionCheckpoint | None], *, is_deleted: bool
    ) -> None:
        """Add a note about partitions without files. The next start refuses those that had records at the backup, and
        makes the others anew."""
        offline = [
            f"{topic.name}-{number}" for number, known in missing.items() if self._why_refused(topic, number, known)
        ]
        self._plan.offline += offline
        empty = len(missing) - len(offline)
        if not empty:
            then = "these will be offline"
        elif not offline:
            then = "these will be empty, and their offsets begin at 0"
        else:
            then = f"{len(offline)} will be offline, {empty} will be empty, and their offsets begin at 0"
        self._note(
            f"{topic.name}: the files of {len(missing)} of {topic.partitions} partitions are missing "
            f"({_names(topic.name, missing)}); {then}. " + self._advice_for_missing(topic, is_deleted=is_deleted)
        )

    def _advice_for_missing(self, topic: Topic, *, is_deleted: bool) -> str:
        group_id = topic.name.removeprefix(INTERNAL_PREFIX)
        if group_id != topic.name:
            return (
                f"They have the only copies of records that queue group {group_id} kept after retention. Put them back"
                " before the next start, or give up these records: after the start, delete the group"
                f" ({command_line('queue delete', group_id)}), and create it again if you still need it"
            )
        if is_deleted:
            return f"If the topic was deleted since the backup, do so again: {command_line('topic delete', topic.name)}"
        return "If they had records, put their files back before the next start"

    def _compare_partition(self, topic: Topic, number: int, checkpoint: PartitionCheckpoint | None) -> None:
        """Compare a partition that the backup knows with its files. `checkpoint` is its row in the backup."""
        sizes = self._sizes(topic, number)
        if checkpoint is None:
            self._rehearse(topic, number, None, sum(sizes.values()))
            return
        checkpoint = _before_cuts(checkpoint, _epochs_in(self._directory(topic, number)))
        checkpoint.history_unknown = True
        first = min(sizes, default=0)
        if first > checkpoint.log_start_offset:
            # Retention or a repair removes first segments. If others are missing, the broker refuses the partition.
            begun, checkpoint.log_start_offset = checkpoint.log_start_offset, first
            checkpoint.segments = [entry for entry in checkpoint.segments if entry.base_offset >= first]
            if not checkpoint.segments:
                checkpoint = _from_the_start(first, checkpoint)
            self._note(
                f"{topic.name}-{number}: begins at offset {first} now, and at {begun} in the backup: retention,"
                " `topic delete-records` or `segment repair` has removed the records between"
            )
        known = {entry.base_offset: entry.size_bytes for entry in checkpoint.segments}
        last = max(known, default=-1)
        unscanned_bytes = sum(size - known.get(base, 0) for base, size in sizes.items() if base >= last)
        self._rehearse(topic, number, checkpoint, unscanned_bytes)

    def _begin_anew(self, topic: Topic, number: int) -> None:
        """Write a row for a partition that the backup does not know. By this row, the next start scans the whole
        log."""
        sizes = self._sizes(topic, number)
        checkpoint = PartitionCheckpoint(
            recovery_point=0,
            log_start_offset=0,
            segments=[],
            unsynced_bound_bytes=BrokerConfig().max_produce_bytes_in_flight + MAX_STORED_BATCH_BYTES,
            history_unknown=True,
        )
        anew = _from_the_start(min(sizes), checkpoint) if sizes else None
        self._rehearse(topic, number, anew, sum(sizes.values()))

    def _rehearse(
        self,
        topic: Topic,
        number: int,
        checkpoint: PartitionCheckpoint | None,
        unscanned_bytes: int,
    ) -> None:
        """Store the checkpoint of a partition, and open the partition with it as the next start will. Add a note if the
        start will refuse it."""
        directory = self._directory(topic, number)
        newer: list[EpochStart] = []
        if checkpoint is not None:
            known = checkpoint.epochs
            epochs = _epochs_in(directory)
            if epochs[: len(known)] == known:
                newer = epochs[len(known) :]
                # Some may begin below the recovery point, because retention has raised it since the backup.
                checkpoint.epochs = known + epochs_unknown_below(checkpoint, epochs)
            self._store(topic, number, checkpoint)
        fault = self._why_refused(topic, number, checkpoint)
        if not fault:
            self._plan.unscanned_bytes += unscanned_bytes
            return
        if newer:  # A repair begins a leader epoch.
            command = command_line("segment repair", str(directory), options=["--accept-gaps"])
            fault += (
                "; if `segment repair` has accepted since the backup that records are missing, let it do so again after"
                f" the restore: {command}"
            )
        self._note_offline(topic, number, fault)

    def _why_refused(self, topic: Topic, number: int, checkpoint: PartitionCheckpoint | None) -> str:
        """Return why the next start will refuse a partition, "" if it will open it."""
        return why_refused(
            str(self._directory(topic, number)), topic.id, topic.config, checkpoint, progress=self._progress
        )

    def _end_offset(self, topic: Topic, number: int) -> int:
        """Return the next offset of a partition, which the headers of its last segment show."""
        sizes = self._sizes(topic, number)
        if not sizes:
            return 0
        # The start removes empty segments after the first one: they were made for batches that were never written.
        last = max((base for base, size_bytes in sizes.items() if size_bytes), default=min(sizes))
        with LogFile(f"{self._directory(topic, number)}/{last:020d}.log") as log:
            scan = LogScan(log, last, check_crc=False)
            for _ in scan.batches():
                pass
            return scan.next_offset

    def _owner(self, name: str) -> Owner | None:
        path = self._data_dir / name / METADATA_NAME
        try:
            return decode_metadata(str(path), read_regular(path))
        except (CorruptLogError, OSError):
            return None

    def _directory(self, topic: Topic, number: int) -> Path:
        return self._data_dir / f"{topic.name}-{number}"

    def _sizes(self, topic: Topic, number: int) -> dict[int, int]:
        directory = self._directory(topic, number)
        return file_bytes(segments_in(directory)) if directory.is_dir() else {}

    def _store(self, topic: Topic, number: int, checkpoint: PartitionCheckpoint) -> None:
        key = partition_row_key(topic.id, number)
        self._plan.writes.append((PARTITIONS, key, msgspec.msgpack.encode(checkpoint)))

    def _note_offline(self, topic: Topic, number: int, why: str) -> None:
        self._note(f"{topic.name}-{number}: will be offline: {why}")
        if (name := f"{topic.name}-{number}") not in self._plan.offline:
            self._plan.offline.append(name)

    def _note(self, text: str) -> None:
        self._plan.notes.append(text)


def _before_cuts(checkpoint: PartitionCheckpoint, epochs: Sequence[EpochStart]) -> PartitionCheckpoint:
    """Return the checkpoint of a log that repairs may have cut below the recovery point since. `epochs` are those that
    its files name.

    A cut begins a leader epoch at the new end of the log, and drops the later epochs. Only what is below belongs to the
    log of the checkpoint. So the recovery point becomes the start of the segment that has the last record before the
    cut: the next start scans what was appended since.
    """
    known = checkpoint.epochs
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, epochs, strict=False)))
    later = epochs[common:]
    if not known or not later or later[0].epoch <= known[-1].epoch:
        return checkpoint
    cut = later[0].start_offset
    before = [entry for entry in checkpoint.segments if entry.base_offset < cut] or checkpoint.segments[:1]
    dropped_from = known[common].start_offset if common < len(known) else checkpoint.recovery_point
    if cut >= checkpoint.recovery_point or cut > dropped_from or not before or before[-1].base_offset > cut:
        return checkpoint
    base_offset = before[-1].base_offset
    return msgspec.structs.replace(
        checkpoint,
        recovery_point=base_offset,
        segments=[*before[:-1], SegmentCheckpoint(base_offset, 0, -1)],
        epochs=[entry for entry in known[:common] if entry.start_offset < base_offset],
    )


def _epochs_in(directory: Path) -> list[EpochStart]:
    """Return the leader epochs in the file of a partition, none if it cannot be read."""
    path = directory / EPOCHS_NAME
    try:
        return decode_epochs(str(path), read_regular(path))
    except (CorruptLogError, OSError):
        return []


def _highest(found: Mapping[int, TopicId | None], topic_id: TopicId) -> int:
    """Return the highest number of the directories that may be a topic's, -1 if there are none."""
    return max((number for number, owner in found.items() if owner in (topic_id, None)), default=-1)


def _likely_owner(found: Mapping[int, TopicId | None]) -> TopicId | None:
    """Return the topic id that most directories of one name state; None if no id is stated more often than all
    others."""
    counts = Counter(owner for owner in found.values() if owner is not None).most_common(2)
    is_clear = len(counts) == 1 or (len(counts) == 2 and counts[0][1] > counts[1][1])
    return counts[0][0] if is_clear else None


def _names(topic_name: str, numbers: Collection[int]) -> str:
    names = [f"{topic_name}-{number}" for number in islice(numbers, _MAX_NAMES)]
    return ", ".join([*names, *["..."] * (len(numbers) > _MAX_NAMES)])


def _from_the_start(first: int, checkpoint: PartitionCheckpoint) -> PartitionCheckpoint:
    """Return a checkpoint of a log that begins at `first` and is not scanned yet. The scan restores the state of
    producers."""
    return msgspec.structs.replace(
        checkpoint,
        recovery_point=first,
        log_start_offset=first,
        segments=[SegmentCheckpoint(first, 0, -1)],
        old_producers=[],
    )
