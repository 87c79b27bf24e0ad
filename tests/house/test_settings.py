"""The tables of docs/SETTINGS.md come from the code.

`python -m tests.house.test_settings` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click
import msgspec
import pytest

from logbroker.cli.main import run
from logbroker.cli.queue.commands import create
from logbroker.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, TopicConfig
from logbroker.queues.model.settings import QUEUE_SETTINGS, QueueGroupSettings
from logbroker.settings import DescribedSetting, described

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "SETTINGS.md"
PLACE: Final = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
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


def table(settings: Iterable[DescribedSetting], options: dict[str, str] | None = None) -> str:
    columns = ["setting", *(["option"] if options else []), "default", "unit", "takes", "effect"]
    rows = [columns, ["---"] * len(columns)]
    for each in settings:
        words = (each.default_text(), each.unit_text(), each.takes_text(), each.setting.effect)
        rows.append([f"`{each.name}`", *([f"`{options[each.name]}`"] if options else []), *words])
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |\n" for row in rows)


def page(text: str) -> str:
    """Return the page with its tables as the code has them."""

    def generated(place: re.Match[str]) -> str:
        made = table(KINDS[place[2]][1], options_of(create) if place[2] == "queue" else None)
        return f"{place[1]}\n{made}\n{place[4]}"

    return PLACE.sub(generated, text)


def test_the_page_is_up_to_date() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [place[2] for place in PLACE.finditer(text)] == list(KINDS)
    assert page(text) == text, "run python -m tests.house.test_settings"


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_says_what_it_does(kind: str) -> None:
    struct, settings = KINDS[kind]
    assert len(settings) == len(msgspec.structs.fields(struct))
    for each in settings:
        assert re.fullmatch(r"[A-Z].{10,}\.", each.setting.effect), f"{each.name} needs a sentence"
        assert not re.match(r"(Of|That|What|Who|Which|By) ", each.setting.effect), each.name
        assert each.takes_text(), f"{each.name} needs bounds, choices or a form"
        assert each.is_number == (each.type in (int, float)), each.name
        assert not each.is_number or each.setting.unit, f"{each.name} needs a unit"


def test_the_example_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    (shown,) = re.findall(r"The third command prints:\n\n```text\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert run(["config", "retention.ms"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.strip().splitlines()]
    assert shown.splitlines() == lines


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
    DOCUMENT.write_text(page(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
