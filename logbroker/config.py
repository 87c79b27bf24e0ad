"""Configuration: of topics, by Kafka's names, and of the broker, from a TOML file."""

from __future__ import annotations

import difflib
import enum
import stat
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from logbroker.address import parse_address
from logbroker.errors import ConfigFileError, InvalidConfigError, quoted
from logbroker.errors.system import system_error_text
from logbroker.record.bands import Band, bands_text, parse_bands
from logbroker.texts import whole_number
from logbroker.types import Durability, PriorityRouting, TimestampType

MIB: Final = 1024 * 1024
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
MAX_SECONDS: Final = 86_400
MIN_LEASE_SECONDS: Final = 0.1
MAX_LEASE_SECONDS: Final = 43_200.0
"""Of a queue group, and of one delivery: 12 hours, as in SQS."""
MAX_DELAY_SECONDS: Final = 604_800.0
"""The longest delay that a nack may ask for, and the longest backoff: 7 days."""
MAX_FILE_BYTES: Final = 64 * 1024
"""Of a file with settings; with all of them, and their documentation, it has 8 KiB."""
MAX_BATCH_BYTES: Final = 16 * MIB
"""Nobody may set max.message.bytes above this."""
OWN_BYTES: Final = 64 * 1024
"""More than the broker adds to a record that it stores in a topic of its own: the headers of a dead letter, or of a
copy."""
MAX_STORED_BATCH_BYTES: Final = MAX_BATCH_BYTES + OWN_BYTES
"""The largest max.message.bytes, that of topics which the broker makes."""
LEAST_OPEN_SEGMENTS: Final = 16
"""File handles for segments, however few a process may open."""
MAX_SEGMENT_BYTES: Final = MAX_INT32
"""Positions in an index are int32."""
MAX_VALUE_CHARACTERS: Final = 1_024
"""Of the text of a topic config; ten bands with the longest names take 780."""


_MAX_LINE_BYTES: Final = 4_096
_MAX_NAME: Final = 200
_TOO_DEEP: Final = "its values are nested too deep"


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one topic, every value set. Names: Kafka's, with dots for underscores."""

    durability: Durability = Durability.SYNCED
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = HOUR_MS
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    priority_bands: tuple[Band, ...] = ()
    """The most urgent one first; (): none."""
    priority_routing: PriorityRouting = PriorityRouting.PRIORITY
    retention_bytes: int = -1
    retention_hold_bytes: int = 1024 * MIB
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 1024 * MIB
    segment_ms: int = 7 * DAY_MS


class ConfigSpec(msgspec.Struct, frozen=True):
    """What one topic config takes."""

    name: str
    documentation: str
    parse: Callable[[str], Any]
    """Raises ValueError with what is allowed."""

    @property
    def field(self) -> str:
        return self.name.replace(".", "_")


def _integer(minimum: int, maximum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = whole_number(text)
        if value is None:
            raise ValueError("a whole number, in digits and nothing else")
        if not minimum <= value <= maximum:
            raise ValueError(f"a number from {minimum} to {maximum}")
        return value

    return parse


def _choice(kind: type[enum.Enum]) -> Callable[[str], enum.Enum]:
    def parse(text: str) -> enum.Enum:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(" or ".join(member.value for member in kind)) from None

    return parse


TOPIC_CONFIGS: Final[Mapping[str, ConfigSpec]] = {
    spec.name: spec
    for spec in (
        ConfigSpec(
            "durability",
            "What an acknowledgement means: synced (survives a power cut) or written (survives a killed process).",
            _choice(Durability),
        ),
        ConfigSpec("index.interval.bytes", "Log bytes between two index entries.", _integer(1, MAX_SEGMENT_BYTES)),
        ConfigSpec(
            "max.message.bytes", "The largest batch taken, header included.", _integer(1, MAX_STORED_BATCH_BYTES)
        ),
        ConfigSpec(
            "message.timestamp.after.max.ms",
            "How far a record's stamp may be ahead of the broker's clock under CreateTime.",
            _integer(0, MAX_INT64),
        ),
        ConfigSpec(
            "message.timestamp.type",
            "Whose clock stamps the records: CreateTime (the producer's) or LogAppendTime (the broker's).",
            _choice(TimestampType),
        ),
        ConfigSpec(
            "priority.bands",
            "Ranges of priorities with partitions of their own, as in hot=7-9:1,warm=4-6:2,cold=0-3:8 (name=priorities:"
            "partitions); empty: none. Fixed when the topic is created, and its number of partitions with them.",
            parse_bands,
        ),
        ConfigSpec(
            "priority.routing",
            "With bands, what chooses a record's partition first: priority (its band, then its key within the band) or"
            " key (its key alone, so that all records of a key stay in order).",
            _choice(PriorityRouting),
        ),
        ConfigSpec("retention.bytes", "Bytes of a partition to keep; -1: no bound.", _integer(-1, MAX_INT64)),
        ConfigSpec(
            "retention.hold.bytes",
            "Bytes of a partition to keep beyond its retention for queue groups that have records to do there; -1: no"
            " bound.",
            _integer(-1, MAX_INT64),
        ),
        ConfigSpec("retention.ms", "Age up to which records are kept; -1: no bound.", _integer(-1, MAX_INT64)),
        ConfigSpec("segment.bytes", "Size at which a segment is rolled.", _integer(256, MAX_SEGMENT_BYTES)),
        ConfigSpec("segment.ms", "Age at which a segment is rolled.", _integer(1, MAX_INT64)),
    )
}


FIXED_CONFIGS: Final = ("priority.bands", "priority.routing")
"""A topic has them from its creation on, or never: where its records lie depends on them."""


def check_given(overrides: Mapping[str, str]) -> None:
    """Raise InvalidConfigError for a value that the broker alone may give a topic."""
    text = overrides.get("max.message.bytes", "1")
    value = whole_number(text)
    if value is not None and value > MAX_BATCH_BYTES:
        raise InvalidConfigError(
            f"max.message.bytes takes a number from 1 to {MAX_BATCH_BYTES}, not {quoted(text)}: more is for the topics"
            " that the broker makes, where it adds headers to records"
        )


def topic_config(overrides: Mapping[str, str], defaults: TopicConfig | None = None) -> TopicConfig:
    """Return the configuration with these values set; raises InvalidConfigError naming the config and what it takes."""
    values: dict[str, Any] = {}
    for name, text in overrides.items():
        spec = TOPIC_CONFIGS.get(name)
        if spec is None:
            raise InvalidConfigError(
                f"there is no config {quoted(name)}; there are: {', '.join(nearest_first(name, TOPIC_CONFIGS))}"
            )
        if len(text) > MAX_VALUE_CHARACTERS:
            raise InvalidConfigError(
                f"{name} takes a text of at most {MAX_VALUE_CHARACTERS} characters; this one has {len(text)}"
            )
        try:
            values[spec.field] = spec.parse(text)
        except ValueError as error:
            raise InvalidConfigError(f"{name} takes {error}, not {quoted(text)}") from None
    config = msgspec.structs.replace(defaults or TopicConfig(), **values)
    if config.priority_routing is PriorityRouting.KEY and not config.priority_bands:
        raise InvalidConfigError("priority.routing=key is for a topic with bands: give it priority.bands, too")
    return config


def canonical_texts(config: TopicConfig, names: Iterable[str]) -> dict[str, str]:
    """Return the values of some configs as the broker writes them, however they were given."""
    return {name: config_text(config, name) for name in names}


def stored_texts(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return configs of a topic as they are written today, from a row that an earlier broker may have stored: it took
    whatever Python reads as a number, and kept the text."""
    texts: dict[str, str] = {}
    defaults = TopicConfig()
    for name, text in overrides.items():
        spec = TOPIC_CONFIGS.get(name)
        if spec is not None and type(getattr(defaults, spec.field)) is int:
            with suppress(ValueError):
                text = str(int(text))
        elif name == "priority.bands":
            text = ",".join(item.strip() for item in text.split(","))
        texts[name] = text
    return texts


def config_text(config: TopicConfig, name: str) -> str:
    """Return the value of one config as the text that `topic_config` reads."""
    value = getattr(config, TOPIC_CONFIGS[name].field)
    if isinstance(value, enum.Enum):
        return str(value.value)
    return bands_text(value) if isinstance(value, tuple) else str(value)


_MAX_BYTES: Final = 2**50
_SHORTEST_SECONDS: Final = 1e-6

BROKER_BOUNDS: Final[Mapping[str, tuple[float, int]]] = {
    "default_partitions": (1, 1_000_000),
    "max_partitions_per_topic": (1, 1_000_000),
    "max_partitions": (1, 100_000_000),
    "max_request_bytes": (1, MAX_INT32),
    "max_response_bytes": (1, MAX_INT32),
    "max_produce_bytes_in_flight": (0, _MAX_BYTES),
    "max_fetch_bytes_in_flight": (0, _MAX_BYTES),
    "fetch_memory_wait_seconds": (_SHORTEST_SECONDS, MAX_SECONDS),
    "max_concurrent_calls": (1, MAX_INT32),
    "max_producers": (1, MAX_INT32),
    "sync_threads": (1, 1_024),
    "max_open_segments": (0, MAX_INT32),
    "min_free_disk_bytes": (0, _MAX_BYTES),
    "retention_check_seconds": (_SHORTEST_SECONDS, MAX_SECONDS),
    "checkpoint_seconds": (_SHORTEST_SECONDS, MAX_SECONDS),
    "thread_switch_interval_seconds": (_SHORTEST_SECONDS, MAX_SECONDS),
    "max_groups": (1, MAX_INT32),
    "max_group_members": (1, MAX_INT32),
    "max_offsets_bytes": (0, _MAX_BYTES),
    "max_group_offsets_bytes": (0, _MAX_BYTES),
    "max_queue_groups": (1, MAX_INT32),
    "max_queue_workers": (1, MAX_INT32),
    "queue_cache_bytes": (0, _MAX_BYTES),
    "reconnect_grace_seconds": (0, MAX_SECONDS),
    "offsets_retention_seconds": (_SHORTEST_SECONDS, MAX_INT32),
}
"""The least and the most that each setting of the broker takes; every number has bounds."""


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a broker; the file has these names. Every default stands here."""

    data_dir: str = "logbroker-data"
    """The folder with everything that is kept; one broker at a time."""
    listen: str = "127.0.0.1:9192"
    """HOST:PORT; port 0 picks a free one."""

    default_partitions: int = 1
    """Of a topic that is created without a count."""
    max_partitions_per_topic: int = 10_000
    """The most that a topic may have."""
    max_partitions: int = 100_000
    """Of all topics together."""
    topic_defaults: dict[str, str | int] = {}
    """Values for topics that do not set them, by Kafka's names."""

    max_request_bytes: int = 32 * MIB
    """The largest message that a client may send."""
    max_response_bytes: int = 4 * MIB - 64 * 1024
    """Fits the 4 MiB that gRPC clients in Go and Java accept, with room for the envelope."""
    max_produce_bytes_in_flight: int = 128 * MIB
    """Bytes of batches that wait to be written; past it appends are refused."""
    max_fetch_bytes_in_flight: int = 128 * MIB
    """Bytes of responses that clients have not taken; gRPC holds them twice."""
    fetch_memory_wait_seconds: float = 5.0
    """How long a reader of large batches waits for that memory before it is refused."""
    max_concurrent_calls: int = 4096
    """Calls and streams at a time; one connection gets a fourth of them."""

    max_producers: int = 100_000
    """Idempotent producers that all partitions remember together, one in two partitions counting twice.

    Of one that is forgotten, a batch whose answer was lost fails with PRODUCER_FORGOTTEN when it is sent again.
    """

    sync_threads: int = 8
    """Threads that write and sync, and that go through partitions at a start."""
    max_open_segments: int = 0
    """File handles kept for segments; 0: half of what the process may open."""
    min_free_disk_bytes: int = 256 * MIB
    """What takes room is refused where the disk has less left, and what works off what is there where it has less than
    half of it: a disk that runs full ends the broker. Less than 16 MiB is not enough for what is under way then."""
    retention_check_seconds: float = 30.0
    """How often retention looks for what has expired."""
    checkpoint_seconds: float = 5.0
    """How often recovery points are stored and `written` data is synced."""
    thread_switch_interval_seconds: float = 0.0005
    """How long a thread keeps the interpreter while others wait for it."""

    max_groups: int = 10_000
    """Groups of consumers."""
    max_group_members: int = 1_000
    """Of one group of consumers."""
    max_offsets_bytes: int = 256 * MIB
    """Memory for the committed offsets of all consumer groups: about 200 bytes each, and their metadata."""
    max_group_offsets_bytes: int = 32 * MIB
    """Of one group."""
    max_queue_groups: int = 1_000
    """Queue groups."""
    max_queue_workers: int = 1_000
    """Of one queue group."""
    queue_cache_bytes: int = 64 * MIB
    """Of batches that queue groups keep, all together, so that what is handed out soon is not read again."""
    reconnect_grace_seconds: float = 2.0
    """How long a group member whose stream broke keeps what it holds; 0: it is released at once."""
    offsets_retention_seconds: float = 7 * 86_400
    """How long the committed offsets of a group without members are kept."""

    def __post_init__(self) -> None:
        if not self.data_dir or "\0" in self.data_dir:
            raise ValueError(f"data_dir is {quoted(self.data_dir)}: name a directory")
        self.parsed_topic_defaults()
        for name, (least, most) in BROKER_BOUNDS.items():
            if not least <= getattr(self, name) <= most:  # also false for nan
                raise ValueError(f"{name} must be from {least:g} to {most}, not {_number_text(getattr(self, name))}")
        for name in ("max_partitions_per_topic", "max_partitions"):
            if self.default_partitions > getattr(self, name):
                raise ValueError(
                    f"default_partitions is {self.default_partitions}, above {name} ({getattr(self, name)}): no topic"
                    " could be created without a count; lower the one or raise the other"
                )

    def parsed_topic_defaults(self) -> TopicConfig:
        """Raises InvalidConfigError."""
        for name in FIXED_CONFIGS:
            if name in self.topic_defaults:
                raise InvalidConfigError(f"{name} is no default: give it to each topic that is to have it")
        defaults = {name: _number_text(value) for name, value in self.topic_defaults.items()}
        check_given(defaults)
        return topic_config(defaults)


def _number_text(value: float | str) -> str:
    """Return a value as messages name it: Python does not write numbers of thousands of digits."""
    return "a number beyond 64 bits" if isinstance(value, int) and abs(value) > MAX_INT64 else str(value)


def nearest_first(name: str, names: Iterable[str]) -> list[str]:
    """Return names by how like this one they are, for a message about one that is none."""
    return sorted(names, key=lambda known: -difflib.SequenceMatcher(None, name.lower(), known.lower()).ratio())


def _check_names(path: Path, raw: Mapping[str, Any]) -> None:
    """Raise ConfigFileError for a setting that there is not, with those that there are."""
    known = msgspec.structs.fields(BrokerConfig)
    names = [field.name for field in known]
    for name, value in raw.items():
        dotted = [f"{name}.{part}" for part in _paths(value)]
        if name == "topic_defaults" and isinstance(value, dict):
            for part, inner in value.items():
                for full in (f"{part}.{rest}" for rest in _paths(inner)):
                    raise ConfigFileError(
                        f'{path}: write "{full[:_MAX_NAME]}" in [topic_defaults] in quotes: TOML parts it at its dots'
                    )
        elif name not in names:
            of_topics = [text for text in (name, *dotted) if text in TOPIC_CONFIGS]
            if of_topics:
                raise ConfigFileError(
                    f"{path}: {of_topics[0]} is a config of topics: write it, in quotes, into [topic_defaults]"
                )
            raise ConfigFileError(
                f"{path}: there is no setting {quoted(name)}; there are: {', '.join(nearest_first(name, names))}"
            )


def _paths(value: Any) -> list[str]:
    """Return the dotted names in a table that TOML made of one with dots."""
    if not isinstance(value, dict):
        return []
    return [
        ".".join((name, *([rest] if rest else []))) for name, inner in value.items() for rest in _paths(inner) or [""]
    ]


def _read_toml(path: Path) -> dict[str, Any]:
    """Read a file that may be anything. Raises ConfigFileError."""
    try:
        if stat.S_ISFIFO(path.stat().st_mode) and not str(path).startswith("/dev/"):  # There a shell has its `<(...)`.
            raise ConfigFileError(f"{path} is a named pipe, which nobody may ever write: name a file")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigFileError(system_error_text(OSError(error.errno, error.strerror, str(path)))) from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigFileError(f"{path} is larger than {MAX_FILE_BYTES:,} bytes: name a file of settings")
    if max(map(len, content.split(b"\n"))) > _MAX_LINE_BYTES:  # What has a thousand dots is read for minutes.
        raise ConfigFileError(f"{path}: not valid settings: a line is longer than {_MAX_LINE_BYTES:,} bytes")
    try:
        return tomllib.loads(content.decode())
    except tomllib.TOMLDecodeError as error:
        wrong = str(error)
    except UnicodeDecodeError as error:
        wrong = f"byte {error.start} is not UTF-8"
    except ValueError:
        wrong = "a number has thousands of digits"
    except RecursionError:
        wrong = _TOO_DEEP
    raise ConfigFileError(f"{path}: not valid TOML: {wrong}")


def _check_listen(path: Path, listen: str) -> None:
    try:
        parse_address(listen, any_port=True)
    except ValueError as error:
        raise ConfigFileError(f"{path}: listen, {quoted(listen)}, {error}") from None


def load_broker_config(path: Path, **overrides: Any) -> BrokerConfig:
    """Read a TOML file; values in `overrides` that are not None win. Raises ConfigFileError with file and key."""
    raw = _read_toml(path)
    try:
        _check_names(path, raw)
        # What the file says is looked at as well where something else wins over it.
        _check_listen(path, msgspec.convert(raw, BrokerConfig).listen)
        raw.update((name, value) for name, value in overrides.items() if value is not None)
        return msgspec.convert(raw, BrokerConfig)
    except RecursionError:
        raise ConfigFileError(f"{path}: {_TOO_DEEP}") from None
    except (msgspec.ValidationError, InvalidConfigError) as error:
        raise ConfigFileError(f"{path}: {error}") from None
