"""`logbroker queue lanes|explain|parked`: lists lanes, and explains why a lane is stalled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import click

from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import BytesType, Whole, key_of
from logbroker.cli.common.clients import CommandQueueAdmin
from logbroker.cli.common.lines import counted, write_line
from logbroker.cli.common.options import broker_option, json_option, number_option
from logbroker.cli.queue.decisions import base64_option
from logbroker.cli.queue.text import (
    halt_text,
    indexed_text,
    key_text,
    lane_document,
    moment_text,
    oldest_text,
    value_text,
)
from logbroker.client.admin.queue_descriptions import LaneOrder
from logbroker.client.sync import LaneDescription, LaneList, QueueDescription
from logbroker.command_line import command_line

MAX_TOP: Final = 10_000
_SUB_LANES: Final = 100
"""Maximum number of sub-lanes shown for a lane."""
_REASONS: Final = 5
"""Maximum number of failure reasons shown for a lane."""


@click.command()
@click.argument("group", metavar="GROUP")
@number_option("--top", kind=Whole(1, MAX_TOP), default=20, help="Number of lanes to show.")
@click.option(
    "--order",
    type=click.Choice(["hottest", "oldest", "held", "waiting"]),
    help="Lanes to show. hottest: lanes with the most records. oldest: lanes whose first record is the oldest; within a"
    " partition, records with lower offsets are taken to be older. held: lanes that are blocked, parked or refused by"
    " the dead-letter topic, the longest held first. waiting: lanes whose first record waits for its next attempt, its"
    " not-before time or the dead-letter topic, or cannot be read now, the next due first.  [default: hottest and"
    " oldest, one after the other]",
)
@broker_option
@json_option
def lanes(group: str, top: int, order: str | None, broker: str, as_json: bool) -> None:
    """Show lanes of GROUP: the hottest, the oldest, or the stalled ones.

    A stalled lane is held or waiting: a held lane needs an operator, a waiting lane goes on by itself. `logbroker queue
    describe` counts both kinds as stalled.

    A record without an ordering key is a lane by itself. It is shown if it waits for its next attempt or is blocked or
    parked. Records without a key that are ready or in flight are only counted.

    `due in` is the time until a waiting lane goes on or, for a lane in flight or in a session, until its lease ends.

    \b
    Examples:
      logbroker queue lanes billing --top 20
      logbroker queue lanes billing --order held --json
    """
    orders: list[LaneOrder] = ["hottest", "oldest"] if order is None else [cast(LaneOrder, order)]
    with CommandQueueAdmin(broker) as admin:
        queue = admin.describe_queue(group)
        found = {chosen: admin.list_lanes(group, order=chosen, top=top) for chosen in orders}
    if as_json:
        documents = {chosen: _document(answer) for chosen, answer in found.items()}
        terminal.write_json(documents if order is None else documents[orders[0]])
        return
    for chosen, answer in found.items():
        _show(chosen, answer)
    if queue.settings.ordering == "none":
        ready, in_flight = queue.counts.ready, queue.counts.in_flight
        write_line(f"without an ordering key: {ready:,} ready, {in_flight:,} in flight; they do not count as lanes")
    _tell_unscanned(queue, any(answer.incomplete for answer in found.values()))


@click.command()
@click.argument("group", metavar="GROUP")
@number_option("--top", kind=Whole(1, MAX_TOP), default=100, help="Number of lanes to show.")
@broker_option
@json_option
def parked(group: str, top: int, broker: str, as_json: bool) -> None:
    """Show the lanes of GROUP that wait for an operator.

    These lanes are blocked, parked or refused by the dead-letter topic; the longest held come first. `logbroker queue
    explain` shows the first record of a lane and its failures. Move the lanes with `logbroker queue resume`, `skip`,
    `drop` or `replace`.

    \b
    Examples:
      logbroker queue parked billing
      logbroker queue parked billing --top 1000 --json
    """
    with CommandQueueAdmin(broker) as admin:
        queue = admin.describe_queue(group)
        answer = admin.list_lanes(group, order="held", top=top)
    if as_json:
        terminal.write_json(_document(answer))
        return
    if not answer.total:
        write_line("no lane waits for an operator")
    else:
        _show("held", answer)
    _tell_unscanned(queue, answer.incomplete)


def _document(answer: LaneList) -> dict[str, Any]:
    lanes = [lane_document(lane) for lane in answer.lanes]
    return {"total": answer.total, "incomplete": answer.incomplete, "lanes": lanes}


def _tell_unscanned(queue: QueueDescription, is_incomplete: bool) -> None:
    """Say what a list of lanes leaves out. The group was described just before the list was made."""
    if unscanned := queue.counts.unscanned:
        write_line(f"{_records_are(unscanned)} not scanned yet: lanes may be missing, or have more records than shown")
    elif is_incomplete:
        write_line("not all records are scanned yet: lanes may be missing, or have more records than shown")


@click.command()
@click.argument("group", metavar="GROUP")
@click.argument("key", metavar="KEY", type=BytesType())
@base64_option
@broker_option
@json_option
def explain(group: str, key: str, in_base64: bool, broker: str, as_json: bool) -> None:
    """Explain what the lane of KEY waits for, if anything.

    KEY is an ordering key. Its lane is all records of that key in the order of the log. If the lane is split, its
    sub-lanes with records are listed: each can be explained by its own name, such as general#3.

    For a record without a key, `logbroker queue parked` or `logbroker queue lanes --order waiting` shows its place and
    the last reason, and `logbroker consume TOPIC --partition N --from OFFSET --max-records 1` shows the record.

    A worker is shown as its id and, in parentheses, its client name: host and process id, unless its program has
    chosen another name.

    `value` is the beginning of the first record's value, as workers get it. With --json, `record` is the whole record,
    as `logbroker consume --format json` writes records.

    \b
    Examples:
      logbroker queue explain billing customer-7
      logbroker queue explain billing customer-7 --json | jq -r .record.value
      logbroker queue explain billing 3q2+7w== --base64
    """
    with CommandQueueAdmin(broker) as admin:
        lane = admin.explain_lane(group, key_of(key, in_base64=in_base64))
        sub_lanes = [admin.explain_lane(group, each) for each in lane.sub_lanes[:_SUB_LANES]]
        description = admin.describe_queue(group)
    if as_json:
        terminal.write_json(lane_document(lane))
        return
    for line in explanation(lane, description):
        write_line(line)
    if sub_lanes:
        write_line()
        _show_lanes(f"{len(sub_lanes):,} of {counted(len(lane.sub_lanes), 'sub-lane')} with records", sub_lanes)


def explanation(lane: LaneDescription, queue: QueueDescription) -> Iterator[str]:
    """Yield the lines that explain one lane, about one screen."""
    yield f"key {key_text(lane.key)} of queue group {queue.id}: {lane.state}"
    yield f"  {_sentence(lane, queue)}"
    rows: list[tuple[str, str]] = []
    if lane.worker_id:
        client = f" ({lane.worker_client})" if lane.worker_client else ""
        rows.append(("holder", f"{lane.worker_id}{client}"))
    if lane.session_token:
        rows.append(("session", f"token {lane.session_token}"))
    if lane.held_ms is not None:
        rows.append(("handed out", f"{terminal.age_text(lane.held_ms)} ago"))
    if lane.due_in_ms is not None:
        is_worked_on = bool(lane.worker_id) and lane.state != "waiting"
        waits_for = "read again" if lane.obstacle else "next retry" if lane.attempt > 1 else "due"
        what = ("lock ends" if lane.session_token else "lease ends") if is_worked_on else waits_for
        extended = ", unless the worker extends it" if is_worked_on else ""
        rows.append((what, f"in {terminal.age_text(lane.due_in_ms)}{extended}"))
    if lane.offset >= 0:
        replaced = ", replaced by an operator" if lane.replaced else ""
        rows.append(("first record", f"{queue.topic}-{lane.partition}, offset {lane.offset}{replaced}"))
        if lane.record is not None:
            rows.append(("value", value_text(lane.record.value)))
        rows.append(("attempts", f"{lane.attempt - 1} of {queue.settings.max_attempts} failed"))
    if lane.cause is not None:
        partition, offset = lane.cause
        times = "once" if lane.cause_attempts == 1 else f"{lane.cause_attempts} times"
        rows.append(("parked for", f"{queue.topic}-{partition}, offset {offset}, which failed {times}"))
    if lane.level is not None:
        rank = "first" if queue.settings.priority_rank == "head" else "most urgent"
        rows.append(("level", f"{lane.level}, as its {rank} record"))
    rows.append(("waiting", f"{counted(lane.waiting, 'record')}"))
    if lane.oldest_timestamp_ms is not None:
        rows.append(("oldest", moment_text(lane.oldest_timestamp_ms)))
    if lane.first_failure_ms is not None:
        rows.append(("first failure", moment_text(lane.first_failure_ms)))
    if lane.last_failure_ms is not None:
        rows.append(("last failure", moment_text(lane.last_failure_ms)))
    reasons = [reason or "(none given)" for reason in reversed(lane.reasons[-_REASONS:])]
    rows += zip(["last reason", *["before that"] * _REASONS], reasons, strict=False)
    for name, text in rows:
        yield f"  {name:<14}{text}"


def _records_are(count: int) -> str:
    return f"{counted(count, 'record')} {'is' if count == 1 else 'are'}"


def _sentence(lane: LaneDescription, queue: QueueDescription) -> str:
    if lane.state == "blocked":
        return "its first record used up its attempts: resume it, skip, drop or replace that record"
    if lane.state == "parked":
        return "it is set aside, and so are its later records: resume it, skip or replace its first record, or drop it"
    if lane.obstacle:
        return f"its first record cannot be read, so it waits, and no attempt is counted: {lane.obstacle}"
    if lane.state == "waiting" and lane.attempt > 1:
        return "its first record failed and waits for its next attempt; later records of the key wait behind it"
    if lane.state == "waiting":
        return "its first record has a time before which it is not delivered; later records of the key wait behind it"
    if lane.state == "dead-lettering" and lane.refusal:
        return lane.refusal
    if lane.state == "dead-lettering":
        return f"its first record is on its way to {queue.settings.dead_letter_topic or 'the dead-letter topic'}"
    if lane.state == "in flight":
        return "a worker has its first record; the others wait until it is settled"
    if lane.state == "in session":
        return "a worker holds it in a session"
    if lane.state == "splitting":
        return "it is being split: it goes on when its delivery in flight is settled and its records are in sub-lanes"
    if lane.state == "split":
        return "its records are in sub-lanes" if lane.sub_lanes else "it is split, and has no waiting records"
    if lane.state == "joining":
        return "its split is being undone: its new records wait until its sub-lanes are done"
    if lane.state == "ready":
        if queue.state == "failed":
            return "the group has failed; the broker's log says why; restart the broker to serve it again"
        if queue.state == "indexing":
            return f"deliveries begin when all records are indexed: {indexed_text(queue)}"
        if queue.obstacle:
            return queue.obstacle
        if halt := halt_text(queue):
            return halt
        connected = [worker for worker in queue.workers if worker.connected]
        taken = [range(lowest, highest + 1) for lowest, highest in (worker.priorities for worker in connected)]
        if connected and lane.level is not None and not any(lane.level in levels for levels in taken):
            bands = ", ".join(sorted({worker.band or "" for worker in connected}))
            return f"no connected worker takes its priority, {lane.level}: they take other bands only ({bands})"
        return "it waits for a worker with room" if connected else "no worker is connected"
    if lane.state == "not scanned":
        unscanned = queue.counts.unscanned
        left = f"{_records_are(unscanned)} not scanned yet" if unscanned else "the topic is not scanned to its end yet"
        if queue.state == "paused":
            left += ", because too many lanes are stalled, or too many records are delayed"
        error = next((each for each in queue.partitions if each.error is not None), None)
        why = ": ask again later"
        if error is not None:
            why = f", because partition {error.partition} cannot be read: {error.error}"
        return f"it has no waiting records in the scanned part of the log; {left}{why}"
    if queue.settings.ordering != "key":
        what = "its records are not found by key" if queue.settings.ordering == "none" else "all records are one lane"
        command = command_line("queue parked", queue.id)
        return f"the group has ordering {queue.settings.ordering}, so {what}: see {command}"
    return "it has no waiting records"


def _show(order: str, answer: LaneList) -> None:
    _show_lanes(f"{order}: {len(answer.lanes):,} of {counted(answer.total, 'lane')}", answer.lanes)


def _show_lanes(title: str, lanes: Sequence[LaneDescription]) -> None:
    numbers = ("waiting", "oldest", "failures", "due in")
    rows = terminal.table(
        "key", "state", *numbers, "first record", "holder, or last reason", numbers=numbers, title=title
    )
    for lane in lanes:
        rows.add_row(
            key_text(lane.key),
            lane.state,
            f"{lane.waiting:,}",
            oldest_text(lane),
            str(lane.attempt - 1),
            "-" if lane.due_in_ms is None else terminal.age_text(lane.due_in_ms),
            "-" if lane.offset < 0 else f"{lane.partition}:{lane.offset}",
            lane.worker_id or lane.refusal or lane.obstacle or (lane.reasons[-1] if lane.reasons else ""),
        )
    terminal.show(rows)
