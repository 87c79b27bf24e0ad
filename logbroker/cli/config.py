"""`logbroker config`: show the settings of brokers, topics and queue groups."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any, Final

import click

from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import PathType
from logbroker.cli.common.lines import tell, write_line
from logbroker.cli.common.options import json_option
from logbroker.config import BROKER_SETTINGS, TOPIC_SETTINGS, load_broker_config, nearest_first
from logbroker.errors import quoted
from logbroker.queues.model.settings import QUEUE_SETTINGS
from logbroker.settings import DescribedSetting

_KINDS: Final = {"broker": BROKER_SETTINGS, "topic": TOPIC_SETTINGS, "queue": QUEUE_SETTINGS}
_TITLES: Final = {"broker": "broker settings", "topic": "topic configs", "queue": "queue group settings"}
_HOW: Final = {
    "broker": "logbroker serve --config FILE.toml",
    "topic": "logbroker topic create or alter, with --config NAME=VALUE",
    "queue": "logbroker queue create or alter; their --help has the options",
}
_SUGGESTIONS: Final = 3


@click.command()
@click.argument("name", required=False)
@click.option(
    "--kind", type=click.Choice(list(_KINDS)), help="Show the settings of brokers, topics or queue groups only."
)
@click.option(
    "--check",
    "checked",
    metavar="FILE.toml",
    type=PathType(),
    help="Check a settings file as `logbroker serve --config` does, and show no settings.",
)
@json_option
def config(name: str | None, kind: str | None, checked: Path | None, as_json: bool) -> None:
    """Show all settings, or setting NAME, with defaults, limits and effects.

    The command needs no broker. It does not show the values of a topic or a queue group; `logbroker topic describe` and
    `logbroker queue describe` do. docs/SETTINGS.md has the same tables.

    \b
    Examples:
      logbroker config
      logbroker config --kind topic
      logbroker config retention.ms
      logbroker config --kind broker --json
      logbroker config --check /etc/logbroker.toml
    """
    if checked is not None:
        if name is not None or kind is not None:
            raise click.UsageError("--check is about a file: leave out NAME and --kind")
        load_broker_config(checked)
        if as_json:
            terminal.write_json({"file": str(checked), "valid": True})
        else:
            tell(f"{checked}: the settings are valid")
        return
    found = [
        (of, setting)
        for of, settings in _KINDS.items()
        for setting in settings
        if kind in (None, of) and name in (None, setting.name)
    ]
    if not found:
        known = [setting.name for of, settings in _KINDS.items() if kind in (None, of) for setting in settings]
        similar = ", ".join(nearest_first(name or "", known)[:_SUGGESTIONS])
        raise click.BadParameter(f"there is no setting {quoted(name)}; similar ones: {similar}", param_hint="'[NAME]'")
    documents = [_document(of, setting) for of, setting in found]
    if as_json:
        terminal.write_json(documents if name is None else documents[0])
    elif name is None:
        for of in dict.fromkeys(of for of, _ in found):
            _show_all(of)
    else:
        _show_one(*found[0])


def _document(kind: str, setting: DescribedSetting) -> dict[str, Any]:
    value = setting.value.value if isinstance(setting.value, enum.Enum) else setting.value
    return {
        "name": setting.name,
        "kind": kind,
        "default": None if setting.setting.default or value == () else value,
        "default_text": setting.default_text(),
        "unit": setting.unit_text() or None,
        "minimum": setting.setting.least,
        "maximum": setting.setting.most,
        "choices": list(setting.choices) or None,
        "effect": setting.setting.effect,
    }


def _show_all(kind: str) -> None:
    rows = terminal.table("setting", "default", "effect", names=("setting",), title=_TITLES[kind])
    for each in _KINDS[kind]:
        bounds = f" Takes {each.takes_text()}." if each.is_number else ""
        rows.add_row(each.name, each.default_text(with_unit=True), each.setting.effect + bounds)
    terminal.show(rows)
    terminal.say(f"Set by: {_HOW[kind]}.")


def _show_one(kind: str, setting: DescribedSetting) -> None:
    write_line(f"{setting.name}, one of the {_TITLES[kind]}")
    lines = {
        "default": setting.default_text(),
        "unit": setting.unit_text(),
        "takes": setting.takes_text(),
        "effect": setting.setting.effect,
        "set by": _HOW[kind],
    }
    rows = terminal.table("", "", header=False)
    for name, text in lines.items():
        if text:
            rows.add_row(name, text)
    terminal.show(rows)
