"""Topic configs, which have Kafka's names, and broker settings, which a TOML file may set.

Both structs describe each field with a `Setting`: unit, bounds and effect.
"""

from __future__ import annotations

import difflib
import enum
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from logbroker.address import parse_address
from logbroker.errors import ConfigFileError, InvalidConfigError, quoted
from logbroker.errors.system import system_error_text
from logbroker.record.bands import Band, bands_text, parse_bands
from logbroker.settings import DescribedSetting, Setting, bounds_of, described
from logbroker.texts import whole_number
from logbroker.types import Durability, PriorityRouting, TimestampType

MIB: Final = 1024 * 1024
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
MAX_SECONDS: Final = 86_400
MOST_PARTITIONS: Final = 16_000
"""The most partitions of a topic. A request lists up to 20,000 items, and a fetch stream reads 20,000 partitions."""
MIN_LEASE_SECONDS: Final = 0.1
MAX_LEASE_SECONDS: Final = 43_200.0
"""Longest lease of a delivery, whether the queue group or the worker sets it: 12 hours, as in SQS."""
MAX_DELAY_SECONDS: Final = 604_800.0
"""Longest delay that a nack may ask for, and longest backoff: 7 days."""
MAX_FILE_BYTES: Final = 64 * 1024
"""Maximum size of a settings file. A file with all settings and their documentation has about 8 KiB."""
MAX_BATCH_BYTES: Final = 16 * MIB
"""Highest max.message.bytes that users may set."""
OWN_BYTES: Final = 64 * 1024
"""Room for the headers that the broker adds when it stores a record in another topic, as a dead letter or as a copy."""
MAX_STORED_BATCH_BYTES: Final = MAX_BATCH_BYTES + OWN_BYTES
"""Highest max.message.bytes, for topics that the broker creates."""
LEAST_OPEN_SEGMENTS: Final = 16
"""Minimum number of file handles for segments, even if the process may open only a few files."""
MAX_SEGMENT_BYTES: Final = MAX_INT32
"""Maximum size of a segment: positions in an index are int32."""
MAX_VALUE_CHARACTERS: Final = 1_024
"""Maximum length of the value of a topic config. Ten bands with the longest names take 780."""


_MAX_LINE_BYTES: Final = 4_096
_MAX_NAME: Final = 200
_TOO_DEEP: Final = "its values are nested too deep"


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configs of one topic. Users see Kafka's names: dots instead of underscores."""

    durability: Annotated[
        Durability,
        Setting(
            "When the broker acknowledges a write: synced waits for the disk, so the write survives a power cut;"
            " written waits for the operating system only, so the write survives a killed broker. On a cluster it has"
            " no effect: every write is replicated."
        ),
    ] = Durability.SYNCED
    index_interval_bytes: Annotated[
        int, Setting("Bytes of log between two entries of a segment's index.", "bytes", 1, MAX_SEGMENT_BYTES)
    ] = 4096
    max_message_bytes: Annotated[
        int, Setting("Maximum size of a record batch, including its header.", "bytes", 1, MAX_BATCH_BYTES)
    ] = 1_048_588
    message_timestamp_after_max_ms: Annotated[
        int,
        Setting(
            "How far a record's timestamp may be ahead of the broker's clock. It applies to CreateTime.",
            "ms",
            0,
            MAX_INT64,
        ),
    ] = HOUR_MS
    message_timestamp_type: Annotated[
        TimestampType,
        Setting("Clock that stamps the records: CreateTime is the producer's, LogAppendTime the broker's."),
    ] = TimestampType.CREATE_TIME
    priority_bands: Annotated[
        tuple[Band, ...],
        Setting(
            "Ranges of priorities that have their own partitions, as name=priorities:partitions with commas between,"
            " such as hot=7-9:1,warm=4-6:2,cold=0-3:8. They cannot change after the topic is created, nor can its"
            " number of partitions.",
            "bands",
        ),
    ] = ()
    priority_routing: Annotated[
        PriorityRouting,
        Setting(
            "How a topic with bands chooses the partition of a record: priority takes the band of its priority, then"
            " its key within the band; key takes the key alone, so all records of a key stay in order. It cannot change"
            " after the topic is created."
        ),
    ] = PriorityRouting.PRIORITY
    retention_bytes: Annotated[
        int,
        Setting(
            "Size of a partition above which its oldest segments are deleted; -1: no limit.", "bytes", -1, MAX_INT64
        ),
    ] = -1
    retention_hold_bytes: Annotated[
        int,
        Setting(
            "Bytes that a partition keeps beyond its retention while queue groups still need the records; -1: no"
            " limit.",
            "bytes",
            -1,
            MAX_INT64,
        ),
    ] = 1024 * MIB
    retention_ms: Annotated[
        int,
        Setting("Age of a segment's newest record after which the segment is deleted; -1: never.", "ms", -1, MAX_INT64),
    ] = 7 * DAY_MS
    segment_bytes: Annotated[
        int, Setting("Size of a segment at which the next one begins.", "bytes", 256, MAX_SEGMENT_BYTES)
    ] = 1024 * MIB
    segment_ms: Annotated[int, Setting("Age of a segment at which the next one begins.", "ms", 1, MAX_INT64)] = (
        7 * DAY_MS
    )


class ConfigSpec(msgspec.Struct, frozen=True):
    """Name, effect and parser of one topic config."""

    name: str
    documentation: str
    parse: Callable[[str], Any]
    """Raises ValueError that says which values are allowed."""

    @property
    def field(self) -> str:
        return self.name.replace(".", "_")


def _integer(minimum: int, maximum: int, room: int = 0) -> Callable[[str], int]:
    """Return the parser of a number. It takes up to `room` more than it says, for values that only the broker sets."""

    def parse(text: str) -> int:
        value = whole_number(text)
        if value is None:
            raise ValueError("a whole number, in digits and nothing else")
        if not minimum <= value <= maximum + room:
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


def _parser(config: DescribedSetting) -> Callable[[str], Any]:
    if config.is_number:
        least, most = config.setting.least, config.setting.most
        room = OWN_BYTES if config.name == "max.message.bytes" else 0  # `check_given` lets no user have it.
        return _integer(int(least or 0), int(most or 0), room)
    return _choice(config.type) if config.choices else parse_bands


TOPIC_SETTINGS: Final = tuple(
    msgspec.structs.replace(config, name=config.name.replace("_", ".")) for config in described(TopicConfig)
)
"""All topic configs, under Kafka's names."""
TOPIC_CONFIGS: Final[Mapping[str, ConfigSpec]] = {
    config.name: ConfigSpec(config.name, config.setting.effect, _parser(config)) for config in TOPIC_SETTINGS
}


FIXED_CONFIGS: Final = ("priority.bands", "priority.routing")
"""Configs that cannot change after the topic is created, because they decide in which partition a record lies."""


def check_given(overrides: Mapping[str, str]) -> None:
    """Raise InvalidConfigError if a user gives a value that only the broker may set."""
    text = overrides.get("max.message.bytes", "1")
    value = whole_number(text)
    if value is not None and value > MAX_BATCH_BYTES:
        raise InvalidConfigError(
            f"max.message.bytes takes a number from 1 to {MAX_BATCH_BYTES}, not {quoted(text)}: only topics that the"
            " broker creates may have more, because it adds headers to their records"
        )


def topic_config(overrides: Mapping[str, str], defaults: TopicConfig | None = None) -> TopicConfig:
    """Return `defaults` with these values set. Raises InvalidConfigError with the config and the values it takes."""
    values: dict[str, Any] = {}
    for name, text in overrides.items():
        spec = TOPIC_CONFIGS.get(name)
        if spec is None:
            raise InvalidConfigError(
                f"there is no config {quoted(name)}; use one of: {', '.join(nearest_first(name, TOPIC_CONFIGS))}"
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
        raise InvalidConfigError("priority.routing=key needs a topic with bands: set priority.bands as well")
    return config


def canonical_texts(config: TopicConfig, names: Iterable[str]) -> dict[str, str]:
    """Return the values of some configs in the form in which the broker stores them."""
    return {name: config_text(config, name) for name in names}


def stored_texts(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the stored configs of a topic in the current form.

    Earlier brokers accepted any text that Python reads as a number, and stored it unchanged.
    """
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
    """Return the value of one config as a text that `topic_config` accepts."""
    value = getattr(config, TOPIC_CONFIGS[name].field)
    if isinstance(value, enum.Enum):
        return str(value.value)
    return bands_text(value) if isinstance(value, tuple) else str(value)


_MAX_BYTES: Final = 2**50
_SHORTEST_SECONDS: Final = 1e-6


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a broker, under the names that the file uses."""

    data_dir: Annotated[
        str, Setting("Directory that holds all data of the broker. Only one broker at a time can use it.", "a path")
    ] = "logbroker-data"
    listen: Annotated[str, Setting("Address that the broker listens on; port 0 picks a free port.", "HOST:PORT")] = (
        "127.0.0.1:9192"
    )
    kafka_listen: Annotated[
        str,
        Setting(
            "Address that the broker listens on for Kafka clients; port 0 picks a free port; empty: not at all."
            " Experimental.",
            "HOST:PORT",
        ),
    ] = ""
    kafka_advertised: Annotated[
        str,
        Setting(
            "Address under which Kafka clients reach the broker, if it differs from kafka_listen, for example behind"
            " a container's port. Empty: the address that the client has connected to.",
            "HOST:PORT",
        ),
    ] = ""

    cluster: Annotated[
        str,
        Setting(
            "Addresses of some nodes of a cluster that speaks Kafka's protocol, with commas between them: the log and"
            " all state are kept there, and the data directory is not used. Empty: everything is kept in the data"
            " directory. Experimental.",
            "HOST:PORT,...",
        ),
    ] = ""
    advertise: Annotated[
        str,
        Setting(
            "With cluster: address under which clients and other gateways reach this gateway, if it differs from"
            " listen. Experimental.",
            "HOST:PORT",
        ),
    ] = ""
    allow_single_replica_acks: Annotated[
        bool,
        Setting(
            "With cluster: whether records are appended to topics that have several replicas but min.insync.replicas=1."
            " What they acknowledge may then be on one node only, and be lost with it. Experimental.",
            "true or false",
        ),
    ] = False

    default_partitions: Annotated[
        int,
        Setting("Number of partitions of a topic that is created without a number.", "partitions", 1, MOST_PARTITIONS),
    ] = 1
    max_partitions_per_topic: Annotated[
        int, Setting("Maximum number of partitions of one topic.", "partitions", 1, MOST_PARTITIONS)
    ] = 10_000
    max_partitions: Annotated[
        int, Setting("Maximum number of partitions of all topics together.", "partitions", 1, 100_000_000)
    ] = 100_000
    topic_defaults: Annotated[
        dict[str, str | int], Setting("Topic configs, under Kafka's names, of topics that do not set them.", "a table")
    ] = {}

    max_request_bytes: Annotated[
        int, Setting("Maximum size of a message that a client sends.", "bytes", 1, MAX_INT32)
    ] = 32 * MIB
    max_response_bytes: Annotated[
        int,
        Setting(
            "Maximum size of a response. The default fits the 4 MiB that gRPC clients in Go and Java accept.",
            "bytes",
            1,
            MAX_INT32,
        ),
    ] = 4 * MIB - 64 * 1024
    max_produce_bytes_in_flight: Annotated[
        int,
        Setting(
            "Memory for batches that wait to be written. When it is full, appends are refused with OVERLOADED.",
            "bytes",
            0,
            _MAX_BYTES,
        ),
    ] = 128 * MIB
    max_fetch_bytes_in_flight: Annotated[
        int,
        Setting(
            "Size of the responses that clients have not read yet. gRPC needs up to twice this much memory for them."
            " Even if this is small, one response at a time is sent.",
            "bytes",
            0,
            _MAX_BYTES,
        ),
    ] = 128 * MIB
    fetch_memory_wait_seconds: Annotated[
        float,
        Setting(
            "How long a fetch of large batches waits for room in max_fetch_bytes_in_flight before it is refused with"
            " OVERLOADED.",
            "seconds",
            _SHORTEST_SECONDS,
            MAX_SECONDS,
        ),
    ] = 5.0
    max_concurrent_calls: Annotated[
        int,
        Setting(
            "Maximum number of calls and streams at the same time. One connection can use a quarter of them. Further"
            " calls of the connection wait in the client until one of its calls ends, or until their deadline.",
            "calls",
            1,
            MAX_INT32,
        ),
    ] = 4096

    max_producers: Annotated[
        int,
        Setting(
            "Number of idempotent producers that the broker remembers; a producer counts once in each partition. A"
            " forgotten producer that sends a batch again gets PRODUCER_FORGOTTEN if the first answer was lost.",
            "producers",
            1,
            MAX_INT32,
        ),
    ] = 100_000

    sync_threads: Annotated[
        int,
        Setting("Number of threads that write and sync, and that recover partitions at startup.", "threads", 1, 1_024),
    ] = 8
    max_open_segments: Annotated[
        int,
        Setting(
            "Number of segment files that stay open; 0: half of the files that the process may open.",
            "files",
            0,
            MAX_INT32,
        ),
    ] = 0
    min_free_disk_bytes: Annotated[
        int,
        Setting(
            "Free disk space below which appends, new topics and groups, and acks with outputs are refused with"
            " DISK_FULL; below half of it, also all other acks and commits. The broker stops if the disk runs full, so"
            " set at least 16 MiB.",
            "bytes",
            0,
            _MAX_BYTES,
        ),
    ] = 256 * MIB
    retention_check_seconds: Annotated[
        float, Setting("Time between two searches for expired segments.", "seconds", _SHORTEST_SECONDS, MAX_SECONDS)
    ] = 30.0
    checkpoint_seconds: Annotated[
        float,
        Setting(
            "Time between two checkpoints. A checkpoint stores the recovery points, and syncs topics whose durability"
            " is written.",
            "seconds",
            _SHORTEST_SECONDS,
            MAX_SECONDS,
        ),
    ] = 5.0
    thread_switch_interval_seconds: Annotated[
        float,
        Setting(
            "How long a thread keeps Python's interpreter lock while others wait for it (sys.setswitchinterval).",
            "seconds",
            _SHORTEST_SECONDS,
            MAX_SECONDS,
        ),
    ] = 0.0005

    max_groups: Annotated[int, Setting("Maximum number of consumer groups.", "groups", 1, MAX_INT32)] = 10_000
    max_group_members: Annotated[
        int, Setting("Maximum number of members of one consumer group.", "members", 1, MAX_INT32)
    ] = 1_000
    max_offsets_bytes: Annotated[
        int,
        Setting(
            "Memory for the committed offsets of all consumer groups. An offset takes about 200 bytes plus its"
            " metadata.",
            "bytes",
            0,
            _MAX_BYTES,
        ),
    ] = 256 * MIB
    max_group_offsets_bytes: Annotated[
        int, Setting("Memory for the committed offsets of one consumer group.", "bytes", 0, _MAX_BYTES)
    ] = 32 * MIB
    max_queue_groups: Annotated[int, Setting("Maximum number of queue groups.", "groups", 1, MAX_INT32)] = 1_000
    max_queue_workers: Annotated[
        int, Setting("Maximum number of workers of one queue group.", "workers", 1, MAX_INT32)
    ] = 1_000
    queue_cache_bytes: Annotated[
        int,
        Setting(
            "Memory in which all queue groups together keep batches that they deliver soon, to read them only once.",
            "bytes",
            0,
            _MAX_BYTES,
        ),
    ] = 64 * MIB
    reconnect_grace_seconds: Annotated[
        float,
        Setting(
            "How long a member of a consumer group keeps its partitions after its connection breaks; 0: not at all.",
            "seconds",
            0,
            MAX_SECONDS,
        ),
    ] = 2.0
    group_initial_rebalance_delay_seconds: Annotated[
        float,
        Setting(
            "How long a consumer group of Kafka clients waits for further members when it begins. If members join"
            " during the wait, the group waits for the same time once more, in all up to the rebalance timeout of the"
            " members.",
            "seconds",
            0,
            MAX_SECONDS,
        ),
    ] = 0.5
    group_session_timeout_seconds: Annotated[
        float,
        Setting(
            "How long a Kafka client with group.protocol=consumer stays a member of its group without a heartbeat.",
            "seconds",
            1,
            3_600,
        ),
    ] = 45.0
    group_heartbeat_interval_seconds: Annotated[
        float,
        Setting(
            "Time between two heartbeats of a Kafka client with group.protocol=consumer; at most a third of the session"
            " timeout is used. A client hears of a new assignment with its next heartbeat.",
            "seconds",
            0.05,
            1_000,
        ),
    ] = 5.0
    offsets_retention_seconds: Annotated[
        float,
        Setting(
            "How long the broker keeps the committed offsets of a consumer group that has no members.",
            "seconds",
            _SHORTEST_SECONDS,
            MAX_INT32,
        ),
    ] = 7 * 86_400

    def __post_init__(self) -> None:
        if not self.data_dir or "\0" in self.data_dir:
            raise ValueError(f"data_dir is {quoted(self.data_dir)}: name a directory")
        self.parsed_topic_defaults()
        for name, (least, most) in BROKER_BOUNDS.items():
            if not least <= getattr(self, name) <= most:  # also refuses nan
                raise ValueError(f"{name} must be from {least:g} to {most}, not {_number_text(getattr(self, name))}")
        for name in ("max_partitions_per_topic", "max_partitions"):
            if self.default_partitions > getattr(self, name):
                raise ValueError(
                    f"default_partitions is {self.default_partitions}, above {name} ({getattr(self, name)}): lower"
                    f" default_partitions or raise {name}"
                )

    def parsed_topic_defaults(self) -> TopicConfig:
        """Return the topic configs of `topic_defaults`. Raises InvalidConfigError."""
        for name in FIXED_CONFIGS:
            if name in self.topic_defaults:
                raise InvalidConfigError(f"{name} cannot be a default: set it when you create a topic")
        defaults = {name: _number_text(value) for name, value in self.topic_defaults.items()}
        check_given(defaults)
        return topic_config(defaults)


BROKER_SETTINGS: Final = tuple(described(BrokerConfig))
BROKER_BOUNDS: Final[Mapping[str, tuple[float, float]]] = bounds_of(BROKER_SETTINGS)
"""Lowest and highest value of each broker setting that is a number; every number has both."""


def _number_text(value: float | str) -> str:
    """Return a value for a message. Python refuses to write numbers with thousands of digits."""
    return "a number beyond 64 bits" if isinstance(value, int) and abs(value) > MAX_INT64 else str(value)


def nearest_first(name: str, names: Iterable[str]) -> list[str]:
    """Return the known names, the most similar to `name` first, for the message about an unknown name."""
    return sorted(names, key=lambda known: -difflib.SequenceMatcher(None, name.lower(), known.lower()).ratio())


def _check_names(path: Path, raw: Mapping[str, Any]) -> None:
    """Raise ConfigFileError for an unknown setting, with the names of the known ones."""
    known = msgspec.structs.fields(BrokerConfig)
    names = [field.name for field in known]
    for name, value in raw.items():
        dotted = [f"{name}.{part}" for part in _paths(value)]
        if name == "topic_defaults" and isinstance(value, dict):
            for part, inner in value.items():
                for full in (f"{part}.{rest}" for rest in _paths(inner)):
                    raise ConfigFileError(
                        f'{path}: write "{full[:_MAX_NAME]}" in [topic_defaults] in quotes: TOML splits names at dots'
                    )
        elif name not in names:
            of_topics = [text for text in (name, *dotted, name.replace("_", ".")) if text in TOPIC_CONFIGS]
            if of_topics:
                raise ConfigFileError(
                    f"{path}: {of_topics[0]} is a topic config: put it into [topic_defaults], in quotes"
                )
            raise ConfigFileError(
                f"{path}: there is no setting {quoted(name)}; use one of: {', '.join(nearest_first(name, names))}"
            )


def _paths(value: Any) -> list[str]:
    """Return the dotted names below a table: TOML makes nested tables from a name with dots."""
    if not isinstance(value, dict):
        return []
    return [
        ".".join((name, *([rest] if rest else []))) for name, inner in value.items() for rest in _paths(inner) or [""]
    ]


def _read_toml(path: Path) -> dict[str, Any]:
    """Read a file that may hold anything. Raises ConfigFileError if it is not TOML."""
    try:
        if stat.S_ISFIFO(path.stat().st_mode) and not str(path).startswith("/dev/"):  # `<(...)` of a shell is there.
            raise ConfigFileError(f"{path} is a named pipe, and reading it could wait for ever: name a regular file")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigFileError(system_error_text(OSError(error.errno, error.strerror, str(path)))) from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigFileError(f"{path} is larger than {MAX_FILE_BYTES:,} bytes: name a settings file")
    if max(map(len, content.split(b"\n"))) > _MAX_LINE_BYTES:  # A name with a thousand dots takes minutes to parse.
        raise ConfigFileError(f"{path}: a line is longer than {_MAX_LINE_BYTES:,} bytes: name a settings file")
    try:
        return tomllib.loads(content.decode("utf-8-sig"))  # Windows editors begin a file with a byte order mark.
    except tomllib.TOMLDecodeError as error:
        wrong = str(error)
    except UnicodeDecodeError as error:
        wrong = f"byte {error.start} is not UTF-8"
    except ValueError:
        wrong = "a number has thousands of digits"
    except RecursionError:
        wrong = _TOO_DEEP
    raise ConfigFileError(f"{path}: not valid TOML: {wrong}")


_WRONG_TYPE: Final = re.compile(r"Expected `([^`]+)`, got `([^`]+)` - at `\$\.?(.+)`")
_TYPE_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


_ANY_ADDRESS: Final = {"0.0.0.0", "::"}
_LOOPBACK: Final = {"localhost", "127.0.0.1", "::1"}


def _check_listen(path: Path, config: BrokerConfig) -> None:
    for name, text, any_port in (
        ("listen", config.listen, True),
        ("kafka_listen", config.kafka_listen, True),
        ("kafka_advertised", config.kafka_advertised, False),
        ("advertise", config.advertise, False),
    ):
        if name == "listen" or text:
            try:
                parse_address(text, any_port=any_port)
            except ValueError as error:
                raise ConfigFileError(f"{path}: {name}, {quoted(text)}, {error}") from None
    if wrong := wrong_kafka_address(config):
        raise ConfigFileError(f"{path}: {wrong}")


def wrong_kafka_address(config: BrokerConfig) -> str | None:
    """Return what is wrong with the addresses for Kafka clients, or None. All addresses can be parsed."""
    if not config.kafka_listen:
        return None
    if config.cluster:
        return "kafka_listen does not go with cluster: Kafka clients connect to the cluster itself"
    grpc, kafka = (parse_address(text, any_port=True) for text in (config.listen, config.kafka_listen))
    hosts = {grpc.host, kafka.host}
    if grpc.port == kafka.port != 0 and (len(hosts) == 1 or hosts & _ANY_ADDRESS or hosts <= _LOOPBACK):
        return f"listen and kafka_listen have the same port, {grpc.port}: give each listener a port of its own"
    if config.kafka_advertised and parse_address(config.kafka_advertised).host in _ANY_ADDRESS:
        return (
            f"kafka_advertised, {quoted(config.kafka_advertised)}, stands for all addresses of a machine: give the one"
            " that clients can connect to"
        )
    return None


def load_broker_config(path: Path, **overrides: Any) -> BrokerConfig:
    """Read a TOML file. Values in `overrides` that are not None win. Raises ConfigFileError with file and name."""
    raw = _read_toml(path)
    try:
        _check_names(path, raw)
        # Check the file even where overrides win.
        _check_listen(path, msgspec.convert(raw, BrokerConfig))
        raw.update((name, value) for name, value in overrides.items() if value is not None)
        return msgspec.convert(raw, BrokerConfig)
    except RecursionError:
        raise ConfigFileError(f"{path}: {_TOO_DEEP}") from None
    except msgspec.ValidationError as error:
        raise ConfigFileError(f"{path}: {_in_plain_words(error)}") from None
    except InvalidConfigError as error:
        raise ConfigFileError(f"{path}: {error}") from None


def _in_plain_words(error: msgspec.ValidationError) -> str:
    """Return the error with the name of the setting first, and with the names of types as in TOML."""
    wrong_type = _WRONG_TYPE.fullmatch(str(error))
    if wrong_type is None:
        return str(error)
    expected, got, name = wrong_type.groups()
    wanted = " or ".join(_TYPE_WORDS.get(each, each) for each in expected.split(" | ") if each != "null")
    return f"{name} must be {wanted}, not {_TYPE_WORDS.get(got, got)}"
