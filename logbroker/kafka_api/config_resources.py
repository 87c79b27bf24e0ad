"""Configs as Kafka's admin APIs show and change them: entries with their sources, and changes of topics.

Two kinds of resources have configs here. A topic has its configs, which may be altered. The broker, named by the id of
the node, has its settings. They are read from its file at a start, so they can be described, but not altered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from logbroker.broker.topics import check_topic_name
from logbroker.config import (
    BROKER_SETTINGS,
    FIXED_CONFIGS,
    MAX_INT32,
    TOPIC_SETTINGS,
    BrokerConfig,
    TopicConfig,
    check_given,
    config_text,
)
from logbroker.engine import Topic, TopicPlan
from logbroker.errors import InvalidConfigError, InvalidRequestError, LogbrokerError, UnknownTopicError, quoted
from logbroker.kafka_api.call import NODE_ID, Call, check_changeable, code_of
from logbroker.kafka_wire.messages.describe_configs import (
    DescribeConfigsResponseResourceResult,
    DescribeConfigsResponseSynonym,
)
from logbroker.settings import DescribedSetting

TOPIC, BROKER = 2, 4
"""Types of resources."""
FROM_TOPIC, FROM_BROKER_FILE, FROM_DEFAULT = 1, 4, 5
"""Sources of a value: set for the topic, set in the broker's file, or built in."""
BOOLEAN, STRING, INT, LONG, DOUBLE = 1, 2, 3, 5, 6
"""Types of values."""
ALTERATION_STEPS: Final = 100
KAFKA_DEFAULTS: Final = {"cleanup.policy": "delete", "compression.type": "producer", "min.insync.replicas": "1"}
"""Kafka's defaults of configs that logbroker does not have. Each topic here has these values, and many programs give
them, so they are accepted; other values are refused."""
_BUILT_IN: Final = TopicConfig()


class WantedConfigs(NamedTuple):
    """The entries that are wanted, and the parts of each."""

    names: frozenset[str]
    """Names of configs; empty: all."""
    synonyms: bool
    documentation: bool


# --- entries ---


def topic_entries(
    topic: Topic, broker: BrokerConfig, wanted: WantedConfigs
) -> list[DescribeConfigsResponseResourceResult]:
    """Return the configs of a topic."""
    defaults = broker.parsed_topic_defaults()
    entries = []
    for setting in TOPIC_SETTINGS:
        name = setting.name
        if wanted.names and name not in wanted.names:
            continue
        values = [(config_text(_BUILT_IN, name), FROM_DEFAULT)]
        if name in broker.topic_defaults:
            values.append((config_text(defaults, name), FROM_BROKER_FILE))
        if name in topic.overrides:
            values.append((config_text(topic.config, name), FROM_TOPIC))
        entries.append(_entry(setting, values, wanted, read_only=name in FIXED_CONFIGS))
    return entries


def broker_entries(broker: BrokerConfig, wanted: WantedConfigs) -> list[DescribeConfigsResponseResourceResult]:
    """Return the settings of the broker."""
    entries = []
    for setting in BROKER_SETTINGS:
        if wanted.names and setting.name not in wanted.names:
            continue
        values = [(_text(setting.value), FROM_DEFAULT)]
        present = getattr(broker, setting.name)
        if present != setting.value:
            values.append((_text(present), FROM_BROKER_FILE))
        entries.append(_entry(setting, values, wanted, read_only=True))
    return entries


def source_of(topic: Topic, name: str, broker: BrokerConfig) -> int:
    """Return the source of a topic's config."""
    if name in topic.overrides:
        return FROM_TOPIC
    return FROM_BROKER_FILE if name in broker.topic_defaults else FROM_DEFAULT


def _entry(
    setting: DescribedSetting, values: Sequence[tuple[str, int]], wanted: WantedConfigs, *, read_only: bool
) -> DescribeConfigsResponseResourceResult:
    """Return an entry. `values` has the values of the config with their sources; the last one is in effect."""
    value, source = values[-1]
    return DescribeConfigsResponseResourceResult(
        name=setting.name,
        value=value,
        read_only=read_only,
        config_source=source,
        synonyms=[
            DescribeConfigsResponseSynonym(name=setting.name, value=text, source=where)
            for text, where in reversed(values)
        ]
        if wanted.synonyms
        else [],
        config_type=_type_of(setting),
        documentation=setting.setting.effect if wanted.documentation else None,
    )


def _type_of(setting: DescribedSetting) -> int:
    if setting.type is bool:
        return BOOLEAN
    if setting.type is float:
        return DOUBLE
    if setting.type is int:
        return INT if (setting.setting.most or 0) <= MAX_INT32 else LONG
    return STRING


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}={each}" for name, each in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- resources ---


def check_broker_name(name: str) -> None:
    """Raise InvalidRequestError unless a resource name is that of this broker, or empty."""
    if name not in ("", str(NODE_ID)):
        raise InvalidRequestError(f"there is no broker {quoted(name)}; name the broker {NODE_ID}, or leave it empty")


def topic_named(call: Call, name: str) -> Topic:
    """Return a topic. Raises UnknownTopicError, or InvalidTopicNameError for a name that no topic can have."""
    try:
        return call.node.engine.topic(name)
    except UnknownTopicError:
        check_topic_name(name)
        raise


def unknown_type(resource_type: int) -> InvalidRequestError:
    """Return the error for a type of resource that has no configs here."""
    return InvalidRequestError(
        f"resources of type {resource_type} have no configs; topics ({TOPIC}) have some, and so has the broker"
        f" ({BROKER})"
    )


# --- alterations ---


def without_kafka_defaults(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the configs without those of Kafka's that say what holds for each topic here. Raises InvalidConfigError
    for another value of one of them."""
    for name, default in KAFKA_DEFAULTS.items():
        if configs.get(name, default) != default:
            raise InvalidConfigError(f"{name} is {default} for each topic, not {quoted(configs[name])}; leave it out")
    return {name: value for name, value in configs.items() if name not in KAFKA_DEFAULTS}


class ConfigChange(NamedTuple):
    """The configs of a topic to set, and those to reset to their defaults."""

    set: dict[str, str]
    unset: list[str]


class AlteredResource(NamedTuple):
    """The outcome for one resource."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class _Named(Protocol):
    """A resource in a request."""

    resource_type: int
    resource_name: str


_Resource = TypeVar("_Resource", bound=_Named)


async def alter_resources(
    call: Call, resources: Sequence[_Resource], change_of: Callable[[_Resource], ConfigChange], *, validate_only: bool
) -> list[AlteredResource]:
    """Alter the configs of resources one after the other, or only check the changes. `change_of` may raise
    LogbrokerError."""
    plan = TopicPlan() if validate_only else None
    named = Counter((each.resource_type, each.resource_name) for each in resources)
    outcomes = []
    for (kind, name), resource in {(each.resource_type, each.resource_name): each for each in resources}.items():
        await call.step(ALTERATION_STEPS)
        code, message = 0, None
        try:
            if named[kind, name] > 1:
                raise InvalidRequestError("the request names the resource twice")
            await _alter(call, resource, change_of, plan)
        except LogbrokerError as error:
            code, message = code_of(error), error.message
        outcomes.append(AlteredResource(code, message, kind, name))
    return outcomes


async def _alter(
    call: Call, resource: _Resource, change_of: Callable[[_Resource], ConfigChange], plan: TopicPlan | None
) -> None:
    if resource.resource_type == BROKER:
        check_broker_name(resource.resource_name)
        raise InvalidRequestError(
            "the settings of the broker are in its file, and cannot be altered while it runs; topic_defaults there has"
            " the configs of topics that do not set them"
        )
    if resource.resource_type != TOPIC:
        raise unknown_type(resource.resource_type)
    check_changeable(resource.resource_name)
    topic = topic_named(call, resource.resource_name)
    wanted = change_of(resource)
    change = ConfigChange(
        without_kafka_defaults(wanted.set), [name for name in wanted.unset if name not in KAFKA_DEFAULTS]
    )
    check_given(change.set)
    if change.set or change.unset:
        await call.node.engine.alter_topic(topic.id, set_configs=change.set, unset_configs=change.unset, plan=plan)
