"""docs/ERRORS.md lists every reason of an error, and no other, in the words of the docstrings.

`python -m tests.house.test_errors_page` writes its tables.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Final

from logbroker import errors
from logbroker.errors import LogbrokerError
from tests.house.generated_tables import DOCS, names_in, table, with_tables, write_tables

DOCUMENT: Final = DOCS / "ERRORS.md"
TABLES: Final = ["errors", "errors.groups", "errors.queues", "codes"]
NO_BEGINNING: Final = re.compile(r"Of |That |What |Who |Which |By ")
"""Words that no first sentence begins with."""

KAFKA_ERRORS: Final = {
    1: "OFFSET_OUT_OF_RANGE",
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    7: "REQUEST_TIMED_OUT",
    8: "BROKER_NOT_AVAILABLE",
    10: "MESSAGE_TOO_LARGE",
    12: "OFFSET_METADATA_TOO_LARGE",
    16: "NOT_COORDINATOR",
    17: "INVALID_TOPIC_EXCEPTION",
    23: "INCONSISTENT_GROUP_PROTOCOL",
    24: "INVALID_GROUP_ID",
    25: "UNKNOWN_MEMBER_ID",
    28: "INVALID_COMMIT_OFFSET_SIZE",
    32: "INVALID_TIMESTAMP",
    35: "UNSUPPORTED_VERSION",
    36: "TOPIC_ALREADY_EXISTS",
    37: "INVALID_PARTITIONS",
    40: "INVALID_CONFIG",
    42: "INVALID_REQUEST",
    43: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    44: "POLICY_VIOLATION",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    47: "INVALID_PRODUCER_EPOCH",
    56: "KAFKA_STORAGE_ERROR",
    57: "LOG_DIR_NOT_FOUND",
    59: "UNKNOWN_PRODUCER_ID",
    68: "NON_EMPTY_GROUP",
    69: "GROUP_ID_NOT_FOUND",
    74: "FENCED_LEADER_EPOCH",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    82: "FENCED_INSTANCE_ID",
    87: "INVALID_RECORD",
    89: "THROTTLING_QUOTA_EXCEEDED",
    110: "FENCED_MEMBER_EPOCH",
    111: "UNRELEASED_INSTANCE_ID",
    113: "STALE_MEMBER_EPOCH",
    121: "INVALID_RECORD_STATE",
    123: "INVALID_SHARE_SESSION_EPOCH",
}
"""Kafka's names of the codes in use, as in its class Errors."""


def all_errors(root: type[LogbrokerError] = LogbrokerError) -> list[type[LogbrokerError]]:
    """Return the classes of `logbroker.errors`, by the order of their reasons."""
    below = [each for child in root.__subclasses__() for each in all_errors(child)]
    own = [root] if root.__module__.startswith(errors.__name__) else []  # Others refine a class inside their package.
    return sorted({*own, *below}, key=lambda each: each.reason)


def room_of(kind: type[LogbrokerError]) -> str:
    room = kind.__module__.removeprefix("logbroker.")
    return "errors" if room == "errors.base" else room


def paragraphs(kind: type[LogbrokerError]) -> list[str]:
    """Return what happened and what to do, from the docstring of the class itself."""
    text = kind.__dict__.get("__doc__") or ""
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip())]


def errors_table(name: str) -> str:
    if name == "codes":
        columns = ["reason", "exception", "gRPC code", "Kafka error"]
        codes = ((each, each.code.name, kafka_text(each.kafka_code)) for each in all_errors())
        return table(columns, *([f"`{each.reason}`", f"`{each.__name__}`", *words] for each, *words in codes))
    rows = [
        [f"`{each.reason}`", *paragraphs(each), "yes" if each.retriable else "no"]
        for each in all_errors()
        if room_of(each) == name
    ]
    return table(["reason", "what happened", "what to do", "retry"], *rows)


def kafka_text(code: int) -> str:
    return "" if code == -1 else f"{code} {KAFKA_ERRORS[code]}"


def test_every_error_says_what_happened_and_what_to_do() -> None:
    for each in all_errors():
        assert len(paragraphs(each)) == 2, f"{each.__name__} needs two paragraphs: what happened, what to do"
        for paragraph in paragraphs(each):
            assert re.fullmatch(r"[A-Z`].{8,}\.", paragraph), (each.__name__, paragraph)
            assert "|" not in paragraph, each.__name__
        assert not NO_BEGINNING.match(paragraphs(each)[0]), each.__name__


def test_every_class_has_a_reason_of_its_own() -> None:
    reasons = [each.reason for each in all_errors()]
    assert len(set(reasons)) == len(reasons)
    assert {each.kafka_code for each in all_errors()} - {-1} == set(KAFKA_ERRORS)


def test_the_page_is_up_to_date() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert names_in(text) == TABLES
    assert with_tables(text, errors_table) == text, "run python -m tests.house.test_errors_page"


def test_the_page_has_each_reason_and_no_other() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(each.reason for each in all_errors() for _ in range(2))
    for each in all_errors():
        assert text.count(f"| `{each.reason}` |") == 2, each.reason


def test_advice_names_only_reasons_that_exist() -> None:
    reasons = {each.reason for each in all_errors()}
    for each in all_errors():
        text = " ".join(paragraphs(each))
        assert set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", text)) <= reasons, each.__name__


def test_the_example_prints_what_the_page_shows() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == shown


if __name__ == "__main__":
    write_tables(DOCUMENT, errors_table)
