"""The tables of docs/SETTINGS.md come from the code.

`python -m tests.house.test_settings` writes them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click
import msgspec
import pytest

from logbroker.cli.main import run
from logbroker.cli.queue.commands import create
from logbroker.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, TopicConfig, load_broker_config
from logbroker.queues.model.settings import QUEUE_SETTINGS, QueueGroupSettings
from logbroker.settings import DescribedSetting, described
from tests.house.generated_tables import DOCS, names_in, table, with_tables, write_tables

DOCUMENT: Final = DOCS / "SETTINGS.md"
KINDS: Final[dict[str, tuple[type[msgspec.Struct], tuple[DescribedSetting, ...]]]] = {
    "broker": (BrokerConfig, BROKER_SETTINGS),
    "topic": (TopicConfig, TOPIC_SETTINGS),
    "queue": (QueueGroupSettings, QUEUE_SETTINGS),
}


def options_of(command: click.Command) -> dict[str, str]:
    """Return the option for each setting of a queue group."""
    options = {each.name or "": each.opts[0] for each in command.params}
    backoff = {f"backoff_{part}": options["backoff"] for part in ("initial_seconds", "factor", "cap_seconds")}
    return options | backoff


def settings_table(kind: str) -> str:
    options = options_of(create) if kind == "queue" else {}
    columns = ["setting", *(["option"] if options else []), "default", "unit", "takes", "effect"]
    rows = []
    for each in KINDS[kind][1]:
        option = [f"`{options[each.name]}`"] if options else []
        words = (each.default_text(), each.unit_text(), each.takes_text(), each.setting.effect)
        rows.append([f"`{each.name}`", *option, *words])
    return table(columns, *rows)


def test_the_page_is_up_to_date() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert names_in(text) == list(KINDS)
    assert with_tables(text, settings_table) == text, "run python -m tests.house.test_settings"


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_says_what_it_does(kind: str) -> None:
    struct, settings = KINDS[kind]
    assert len(settings) == len(msgspec.structs.fields(struct))
    for each in settings:
        assert re.fullmatch(r"[A-Z].{10,}\.", each.setting.effect), f"{each.name} needs a sentence"
        assert not re.match(r"(Of|That|What|Who|Which|By) ", each.setting.effect), each.name
        assert "|" not in each.setting.effect, each.name
        assert each.takes_text(), f"{each.name} needs bounds, choices or a form"
        assert each.is_number == (each.type in (int, float)), each.name
        assert not each.is_number or each.setting.unit, f"{each.name} needs a unit"


def test_the_example_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    (shown,) = re.findall(
        r"The third command prints:\n\n```text\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL
    )
    assert run(["config", "retention.ms"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.strip().splitlines()]
    assert shown.splitlines() == lines


def test_a_broker_takes_the_file_of_the_example(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "logbroker.toml"
    path.write_text(example, encoding="utf-8")
    assert load_broker_config(path) != BrokerConfig()


def test_a_field_without_a_description_is_refused() -> None:
    class Undescribed(msgspec.Struct):
        max_things: int = 5

    with pytest.raises(TypeError, match=r"Undescribed\.max_things needs a Setting"):
        list(described(Undescribed))


def test_a_default_is_within_its_bounds() -> None:
    for _, settings in KINDS.values():
        for each in settings:
            if each.setting.least is not None and each.setting.most is not None:
                assert each.setting.least <= each.value <= each.setting.most, each.name


if __name__ == "__main__":
    write_tables(DOCUMENT, settings_table)
