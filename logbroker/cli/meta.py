"""`logbroker meta`: backups of the metadata store. Needs no broker."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import PathType
from logbroker.cli.common.lines import confirm, counted, tell, write_line
from logbroker.cli.common.options import json_option, yes_option
from logbroker.command_line import command_line
from logbroker.config import BrokerConfig
from logbroker.errors import DataDirError
from logbroker.texts import size_text
from logbroker.tools.metadata_backup import Backup, back_up, read_backup
from logbroker.tools.metadata_restore import RestorePlan, extracted, plan_restore
from logbroker.tools.metadata_restore import restore as put_in_place

_ADVICE: Final = (
    "If the files are older than this backup, restore a backup of the metadata from before they were copied"
)

_MIB: Final = 1 << 20
_MOST_GROUPS: Final = 100
"""The most groups of one type that the text output names."""

data_dir_option = click.option(
    "--data-dir",
    metavar="DIR",
    type=PathType(),
    default=BrokerConfig().data_dir,
    show_default=True,
    help="Data directory of the broker.",
)


@click.group()
def meta() -> None:
    """Back up and restore the metadata store, without a broker.

    The metadata store holds topics, configs, recovery points, producers and the state of groups.

    \b
    Examples:
      logbroker meta backup --data-dir ./data /backups
      logbroker meta restore --data-dir ./data /backups/logbroker-meta-20260131T120000Z.backup --dry-run
    """


@meta.command()
@click.argument("target", type=PathType(path_type=str))
@data_dir_option
@json_option
def backup(target: str, data_dir: Path, as_json: bool) -> None:
    """Write a backup of the metadata store to TARGET.

    TARGET is an existing directory, or a new file whose name has a suffix. A broker may run at the same time: the
    backup holds the state of one moment. The command reads every value and verifies its checksum. If a value is
    damaged, the command writes no backup and exits with 1.

    \b
    Examples:
      logbroker meta backup --data-dir ./data /backups
      logbroker meta backup --data-dir ./data before-upgrade.backup
    """
    if target.endswith(os.sep) and not os.path.isdir(target):
        raise DataDirError(f"there is no directory {target}: create it, or name a file")
    made, values = back_up(data_dir, Path(target))
    if as_json:
        terminal.write_json({"backup": made, "values": values})
    else:
        size = size_text(made.store_bytes)
        tell(f"{made.path}: {sum(values.values()):,} values, {size}, every checksum is right")


@meta.command()
@click.argument("file", type=PathType())
@data_dir_option
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@yes_option
@json_option
def restore(file: Path, data_dir: Path, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Replace the metadata store with the backup FILE. No broker may run.

    The current store is kept beside the new one. Partitions are not changed: the next start finds the records appended
    and the topics created since the backup. Before it changes anything, the command shows where the backup and the
    files of the partitions differ. Committed offsets of groups go back to the state of the backup. Groups created since
    the backup are gone, and are named: create them again. A topic created since keeps all records until you set its
    retention again: the last lines are the commands for it.

    The files must not be older than the backup: a partition that lacks bytes which were synced at the time of the
    backup is offline after the next start. The command names such partitions before it asks. To find them, it reads
    what the next start will scan: the records after the recovery points of the backup. `logbroker segment verify` finds
    damage in the records before these.

    \b
    Examples:
      logbroker meta restore --data-dir ./data /backups/logbroker-meta-20260131T120000Z.backup --dry-run
      logbroker meta restore --data-dir ./data /backups/logbroker-meta-20260131T120000Z.backup
    """
    found = read_backup(file)
    with extracted(found, data_dir) as store:
        with _progress() as progress:
            plan = plan_restore(found, store, data_dir, progress)
        if not as_json:
            _show(plan)
        replaced: Path | None = None
        if not dry_run:
            if not yes:
                but = f", although {counted(len(plan.offline), 'partition')} will be offline" if plan.offline else ""
                confirm(f"Restore it{but}?")
            replaced = put_in_place(plan, store, data_dir)
    if as_json:
        terminal.write_json(_document(plan, replaced, restored=not dry_run))
    elif not dry_run:
        kept = ""
        if replaced is not None:
            back = command_line("meta restore", str(replaced), options=["--data-dir", str(data_dir)])
            kept = (
                f"; the store that was there is kept as {replaced}: remove it when you no longer need it; to go back to"
                f" it, stop the broker, then: {back}"
            )
        tell(f"restored{kept}")
    if not as_json and plan.keep_all:
        _tell_to_set_retention(plan.keep_all)


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    done = 0
    with terminal.progress("reading", None, "MiB") as count:

        def advance(read_bytes: int) -> None:
            nonlocal done
            done += read_bytes
            count(-(-done // _MIB))

        yield advance


def _show(plan: RestorePlan) -> None:
    size = size_text(plan.unscanned_bytes)
    write_line(f"{plan.backup.path}: of {_time_text(plan.backup)}, {sum(plan.values.values()):,} values")
    write_line(f"the next start will scan {size} of log after the recovery points of the backup")
    if plan.store_error:
        write_line(f"the store that is there cannot be read: {plan.store_error}")
    for note in plan.notes or ["the topics and partitions are those of the backup"]:
        write_line(f"  {note}")
    for kind in sorted(set(plan.gone_groups.values()), reverse=True):
        ids = sorted(group_id for group_id, group_type in plan.gone_groups.items() if group_type == kind)
        more = f" and {len(ids) - _MOST_GROUPS:,} more (--json names all)" if len(ids) > _MOST_GROUPS else ""
        named = ", ".join(ids[:_MOST_GROUPS])
        write_line(f"  {counted(len(ids), f'{kind} group')} not in the backup will be gone: {named}{more}")
    if plan.offline:
        write_line(f"{counted(len(plan.offline), 'partition')} will be offline. {_ADVICE}")


def _tell_to_set_retention(topics: list[str]) -> None:
    """Write the commands that end the retention for ever of topics that lost their configs."""
    keep, their = ("keeps", "its") if len(topics) == 1 else ("keep", "their")
    tell(
        f"after the start, {counted(len(topics), 'topic')} {keep} all records, so the disk fills up, until you set"
        f" {their} retention again. To the broker's defaults (--config sets a value of the topic's own instead):"
    )
    for name in topics:
        options = ("--unset", "retention.ms", "--unset", "retention.bytes")
        tell(f"  {command_line('topic alter', name, options=options)}")


def _document(plan: RestorePlan, replaced: Path | None, *, restored: bool) -> dict[str, object]:
    return {
        "backup": plan.backup,
        "values": plan.values,
        "unscanned_bytes": plan.unscanned_bytes,
        "store_error": plan.store_error or None,
        "notes": plan.notes,
        "offline": plan.offline,
        "keep_all": plan.keep_all,
        "gone_groups": plan.gone_groups,
        "restored": restored,
        "replaced": None if replaced is None else str(replaced),
    }


def _time_text(backup: Backup) -> str:
    made = datetime.datetime.fromtimestamp(backup.created_at_ms / 1000, tz=datetime.UTC)
    return made.isoformat(timespec="seconds").replace("+00:00", "Z")
