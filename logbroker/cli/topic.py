"""`logbroker topic`: create, list, describe, alter and delete topics, and delete their records."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Final

import click

from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import OFFSET, NameType, Whole
from logbroker.cli.common.clients import CommandAdmin, CommandQueueAdmin
from logbroker.cli.common.lines import confirm, counted, tell, write_line
from logbroker.cli.common.options import broker_option, json_option, number_option, yes_option
from logbroker.client.sync import QueueDescription, TopicDescription, TopicInfo
from logbroker.errors import CorruptLogError, LogbrokerError
from logbroker.record.bands import bands_text
from logbroker.texts import size_text
from logbroker.types import PriorityRouting, TopicPartition, topic_id_text

_NAMED: Final = 10
"""Maximum number of queue groups that a question names."""


def _configs(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    configs = {}
    for text in values:
        name, separator, value = text.partition("=")
        if not separator:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE")
        if name in configs:
            raise click.BadParameter(f"{name} is given twice")
        configs[name] = value
    return configs


config_option = click.option(
    "--config",
    "configs",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_configs,
    help="Topic config to set, such as retention.ms=3600000 or durability=written; `logbroker config --kind topic`"
    " lists all. Repeatable.",
)


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics.

    \b
    Examples:
      logbroker topic create orders --partitions 8 --config retention.ms=3600000
      logbroker topic create alerts --bands hot=7-9:1,warm=4-6:2,cold=0-3:8
      logbroker topic describe orders
      logbroker topic alter orders --partitions 16 --unset retention.ms
    """


@topic.command()
@click.argument("name")
@number_option(
    "--partitions",
    kind=Whole(1),
    help="Number of partitions.  [default: the sum of the bands, else the broker's default_partitions]",
)
@click.option(
    "--bands",
    type=NameType(),
    metavar="NAME=PRIORITIES:N,...",
    help="Ranges of priorities, each with N partitions of its own. The bands together must cover the priorities 0 to 9."
    " Sets the config priority.bands.",
)
@click.option(
    "--routing",
    type=click.Choice([routing.value for routing in PriorityRouting]),
    help="How a topic with bands chooses the partition of a record. priority: by the band of its priority, then by its"
    " key within the band. key: by its key alone, so all records of a key stay in order. Sets the config"
    " priority.routing.  [default: priority]",
)
@config_option
@broker_option
@json_option
def create(
    name: str,
    partitions: int | None,
    bands: str | None,
    routing: str | None,
    configs: dict[str, str],
    broker: str,
    as_json: bool,
) -> None:
    """Create topic NAME.

    Bands cannot be changed later, nor can the number of partitions of a topic with bands.

    \b
    Examples:
      logbroker topic create orders --partitions 8
      logbroker topic create events --config retention.ms=3600000 --config durability=written
      logbroker topic create alerts --bands hot=7-9:1,warm=4-6:2,cold=0-3:8
      logbroker topic create calls --bands hot=5-9:4,cold=0-4:4 --routing key
    """
    for option, config, value in (("--bands", "priority.bands", bands), ("--routing", "priority.routing", routing)):
        if value is not None and config in configs:
            raise click.UsageError(f"{option} is the config {config}: give one of them")
        if value is not None:
            configs[config] = value
    with CommandAdmin(broker) as admin:
        info = admin.create_topic(name, partitions, configs)
    _tell(info, f"created {_sketch(info)}", as_json=as_json)


@topic.command(name="list")
@broker_option
@json_option
def list_topics(broker: str, as_json: bool) -> None:
    """List all topics.

    \b
    Examples:
      logbroker topic list
      logbroker topic list --json | jq -r '.[].name'
    """
    with CommandAdmin(broker) as admin:
        infos = admin.list_topics()
    if as_json:
        terminal.write_json([_info_document(info) for info in infos])
        return
    columns = ["topic", "partitions", "generation", "id"]
    if any(info.bands for info in infos):
        columns.append("bands")
    rows = terminal.table(*columns, numbers=("partitions", "generation"))
    for info in infos:
        cells = (info.name, str(info.partitions), str(info.generation), topic_id_text(info.id), bands_text(info.bands))
        rows.add_row(*cells[: len(columns)])
    terminal.show(rows)


@topic.command()
@click.argument("name")
@broker_option
@json_option
def describe(name: str, broker: str, as_json: bool) -> None:
    """Show the partitions, configs and generations of topic NAME.

    \b
    Examples:
      logbroker topic describe orders
      logbroker topic describe orders --json
    """
    with CommandAdmin(broker) as admin:
        description = admin.describe_topic(name)
    if as_json:
        terminal.write_json(_document(description))
    else:
        _show(description)


@topic.command()
@click.argument("name")
@number_option("--partitions", kind=Whole(1), help="New number of partitions; it can only grow.")
@config_option
@click.option(
    "--unset", multiple=True, metavar="KEY", help="Topic config to set back to the broker's default. Repeatable."
)
@broker_option
@json_option
def alter(
    name: str, partitions: int | None, configs: dict[str, str], unset: tuple[str, ...], broker: str, as_json: bool
) -> None:
    """Add partitions to topic NAME, set or unset its configs.

    Adding partitions begins a new generation of the topic: producers route by the new number of partitions, so a key
    may move to another partition. Groups finish the records of the earlier generation first; `logbroker group describe`
    shows the progress of a group. A topic that a queue group with ordering single reads cannot get more partitions.

    \b
    Examples:
      logbroker topic alter orders --partitions 16
      logbroker topic alter orders --config retention.ms=3600000
      logbroker topic alter orders --unset retention.ms
    """
    if partitions is None and not configs and not unset:
        raise click.UsageError("give --partitions, --config or --unset")
    with CommandAdmin(broker) as admin:
        info = admin.alter_topic(name, partitions=partitions, set_configs=configs, unset_configs=unset)
    _tell(info, f"altered {_sketch(info)}", as_json=as_json)


@topic.command()
@click.argument("name")
@yes_option
@broker_option
@json_option
def delete(name: str, yes: bool, broker: str, as_json: bool) -> None:
    """Delete topic NAME and all its records.

    Its queue groups are deleted with it, and so are the offsets that consumer groups have committed there. The question
    names the queue groups.

    \b
    Examples:
      logbroker topic delete orders
      logbroker topic delete orders --yes
    """
    with CommandAdmin(broker) as admin:
        if not yes:
            admin.describe_topic(name)  # A topic that does not exist is reported before the question.
            confirm(f"Delete topic {name} and all its records?{_groups_that_go(broker, name)}")
        info = admin.delete_topic(name)
    _tell(info, f"deleted {_sketch(info)}", as_json=as_json)


@topic.command("delete-records")
@click.argument("name")
@number_option("--partition", kind=Whole(0), help="Partition whose records are deleted; without it, all partitions.")
@number_option(
    "--before",
    kind=OFFSET,
    help="Delete the records below this offset, which needs --partition; without it, all records.",
)
@yes_option
@broker_option
@json_option
def delete_records(name: str, partition: int | None, before: int | None, yes: bool, broker: str, as_json: bool) -> None:
    """Delete the first records of topic NAME.

    Consumers lose them, and so do queue groups, except the records of stalled lanes, which the broker copies first. The
    question names the queue groups that have not done all of these records.

    \b
    Examples:
      logbroker topic delete-records orders
      logbroker topic delete-records orders --partition 3 --before 120000 --yes
    """
    if before is not None and partition is None:
        raise click.UsageError("give --partition with --before: each partition has offsets of its own")
    with CommandAdmin(broker) as admin:
        info = admin.describe_topic(name).info
        numbers = range(info.partitions) if partition is None else [partition]
        if not yes:
            which = f"the records below offset {before}" if before is not None else "all records"
            where = f"topic {name}" if partition is None else f"partition {partition} of topic {name}"
            confirm(f"Delete {which} of {where}?{_losses(broker, name, numbers, before)}")
        found = admin.delete_records({TopicPartition(name, number): before for number in numbers})
    if as_json:
        starts = [
            {"partition": place.partition, "error": str(outcome)}
            if isinstance(outcome, LogbrokerError)
            else {"partition": place.partition, "log_start_offset": outcome}
            for place, outcome in found.items()
        ]
        terminal.write_json({"name": name, "partitions": starts})
    else:
        for place, outcome in found.items():
            if not isinstance(outcome, LogbrokerError):
                tell(f"{name}-{place.partition} now begins at offset {outcome}")
    for outcome in found.values():
        if isinstance(outcome, LogbrokerError):
            raise outcome


def _groups_that_go(broker: str, topic: str) -> str:
    """Name the queue groups that are deleted with a topic."""
    names = [queue.id for queue in _queues_of(broker, topic)]
    return f" Queue groups that are deleted with it: {_list_text(names)}" if names else ""


def _losses(broker: str, topic: str, partitions: Container[int], before: int | None) -> str:
    """Name the queue groups that have records below an offset (None: the end) that are not done."""
    losing = [
        queue.id
        for queue in _queues_of(broker, topic)
        if any(
            each.partition in partitions and 0 <= each.floor < (each.end if before is None else min(before, each.end))
            for each in queue.partitions
        )
    ]
    if not losing:
        return ""
    return (
        f" Queue groups that have not done all of them: {_list_text(losing)}. They lose the rest, except the records of"
        " stalled lanes"
    )


def _queues_of(broker: str, topic: str) -> list[QueueDescription]:
    """Return the queue groups of a topic."""
    with CommandQueueAdmin(broker) as admin:
        queues = admin.describe_queues([group.id for group in admin.list_queues()])
    return [queue for queue in queues if isinstance(queue, QueueDescription) and queue.topic == topic]


def _list_text(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _tell(info: TopicInfo, sentence: str, *, as_json: bool) -> None:
    if as_json:
        terminal.write_json(_info_document(info))
    else:
        tell(sentence)


def _sketch(info: TopicInfo) -> str:
    return f"topic {info.name} ({counted(info.partitions, 'partition')})"


def _info_document(info: TopicInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "id": topic_id_text(info.id),
        "partitions": info.partitions,
        "generation": info.generation,
        "bands": [
            {
                "name": band.name,
                "priorities": [band.lowest_priority, band.highest_priority],
                "first_partition": band.first_partition,
                "partitions": band.partitions,
            }
            for band in info.bands
        ],
        "routes_by_key": info.routes_by_key,
    }


def _document(description: TopicDescription) -> dict[str, Any]:
    return {
        **_info_document(description.info),
        "created_at_ms": description.created_at_ms,
        "configs": {
            config.name: {"value": config.value, "is_default": config.is_default} for config in description.configs
        },
        "generations": [
            {"generation": item.generation, "partitions": item.partitions, "start_offsets": item.start_offsets}
            for item in description.generations
        ],
        "partition_details": [
            {"partition": item.partition, "error": str(item.error)}
            if item.error is not None and not isinstance(item.error, CorruptLogError)
            else {
                "partition": item.partition,
                **({} if item.error is None else {"error": str(item.error)}),
                "log_start_offset": item.log_start_offset,
                "high_watermark": item.high_watermark,
                "log_end_offset": item.log_end_offset,
                "leader_epoch": item.leader_epoch,
                "size_bytes": item.size_bytes,
                "segments": item.segments,
                **({"cut_bytes": item.cut_bytes, "cut_offset": item.cut_offset} if item.cut_bytes else {}),
            }
            for item in description.partitions
        ],
    }


def _show(description: TopicDescription) -> None:
    info = description.info
    created = terminal.local_time_text(description.created_at_ms)
    write_line(f"{_sketch(info)}, id {topic_id_text(info.id)}, created {created}")
    write_line()
    if info.bands:
        _show_bands(info)
    columns = ("partition", "start offset", "high watermark", "end offset", "leader epoch", "segments", "size")
    rows = terminal.table(*columns, numbers=columns)
    told: list[str] = []
    for item in description.partitions:
        if isinstance(item.error, CorruptLogError):
            told.append(f"partition {item.partition} cannot be read to its end: {item.error}")
        elif item.error is not None:
            told.append(str(item.error))  # It names the partition.
            rows.add_row(str(item.partition), "offline")
            continue
        if item.cut_bytes:
            told.append(
                f"partition {item.partition} was cut at offset {item.cut_offset} when the broker started: "
                f"{counted(item.cut_bytes, 'byte')}, kept in side files (*.cut-*)"
            )
        offsets = (item.log_start_offset, item.high_watermark, item.log_end_offset, item.leader_epoch, item.segments)
        rows.add_row(str(item.partition), *map(str, offsets), size_text(item.size_bytes))
    terminal.show(rows)
    terminal.say(*told)
    configs = terminal.table("config", "value", "")
    for config in description.configs:
        configs.add_row(config.name, config.value, "" if config.is_default else "set by the topic")
    terminal.show(configs)
    if len(description.generations) > 1:
        generations = terminal.table("generation", "partitions", "began at the offsets")
        for generation in description.generations:
            offsets_text = ", ".join(map(str, generation.start_offsets))
            generations.add_row(str(generation.generation), str(generation.partitions), offsets_text)
        terminal.show(generations)


def _show_bands(info: TopicInfo) -> None:
    if info.routes_by_key:
        write_line("A key's records go to one partition, whatever their priorities (priority.routing=key).")
        write_line()
    bands = terminal.table("band", "priorities", "partitions", "numbers", numbers=("partitions",))
    for band in info.bands:
        first, last = band.partition_range[0], band.partition_range[-1]
        bands.add_row(
            band.name,
            _range_text(band.lowest_priority, band.highest_priority),
            str(band.partitions),
            "all" if info.routes_by_key else _range_text(first, last),
        )
    terminal.show(bands)


def _range_text(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
