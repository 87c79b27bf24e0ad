"""Whole modules: one per API, one for the headers, one for what consumers tell each other, and the index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wiregen.definitions import Message, read_message
from wiregen.layouts import CODES, Layouts
from wiregen.texts import (
    Names,
    class_lines,
    reader_lines,
    run_codes,
    runs,
    snake,
    struct_name,
    writer_lines,
    writing,
)

_SOURCE: Final = "Generated from Apache Kafka's message definitions (proto/kafka) by `make kafka-wire`; do not edit."
_PRIMITIVES: Final = re.compile(
    r"(?<![\w.])(?:(?:read|write|check|skip)_\w+(?=\()|cut_short|misfit|required(?=\()|unknown_field|NO_\w+|Buffer|Parts)\b"
)


@dataclass(frozen=True)
class Part:
    """One message, and the name of its codec."""

    codec: str
    message: Message


def generated(folder: Path) -> dict[str, str]:
    """Return the texts of all modules by their paths below logbroker/kafka_wire, from a folder of definitions.

    They are not formatted: lines may be long.
    """
    messages = {path.stem: read_message(path) for path in sorted(folder.glob("*.json"))}
    apis = sorted(
        (message.api_key, name.removesuffix("Request"))
        for name, message in messages.items()
        if message.api_key is not None and name.endswith("Request")
    )
    texts = {
        "messages/headers.py": _module(
            "Headers of requests and responses.",
            [Part("REQUEST_HEADER", messages["RequestHeader"]), Part("RESPONSE_HEADER", messages["ResponseHeader"])],
        ),
        "messages/consumer_protocol.py": _module(
            "Subscriptions and assignments: what consumers of a classic group tell each other through the broker.",
            [
                Part("SUBSCRIPTION", messages["ConsumerProtocolSubscription"]),
                Part("ASSIGNMENT", messages["ConsumerProtocolAssignment"]),
            ],
        ),
        "apis.py": "\n".join(_index([(name, messages[f"{name}Request"]) for _, name in apis])) + "\n",
    }
    for key, name in apis:
        parts = [Part("REQUEST", messages[f"{name}Request"]), Part("RESPONSE", messages[f"{name}Response"])]
        if parts[0].message.versions != parts[1].message.versions:
            raise ValueError(f"{name}: request and response have different versions")
        texts[f"messages/{snake(name)}.py"] = _module(f"{name}, API key {key}.", parts)
    return texts


def _module(title: str, parts: list[Part]) -> str:
    body = [line for part in parts for line in _message_lines(part)]
    structs = sorted({codes for part in parts for codes in _codes_of(part.message)})
    constants = [f'{struct_name(codes)}: Final = struct.Struct(">{codes}")' for codes in structs]
    text = "\n".join(body)
    used = sorted(set(_PRIMITIVES.findall(text)), key=lambda name: (not name.isupper(), name.islower(), name))
    lines = [
        f'"""{title}',
        "",
        f"{_SOURCE}",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        *(["import struct"] if structs else []),
        "from collections.abc import Sequence",
        "from typing import Final",
        "",
        "import msgspec",
        "",
        "from logbroker.kafka_wire.codec import MessageCodec",
        f"from logbroker.kafka_wire.primitives import {', '.join(used)}",
        "",
        *constants,
        *([""] if constants else []),
        *body,
    ]
    return "\n".join(lines).rstrip() + "\n"


def _codes_of(message: Message) -> Iterator[str]:
    for layout in Layouts(message).all():
        for run, _, takes_tags in runs(layout):
            if run:
                yield from {codes := run_codes(run, takes_tags), writing(codes)}
        for each in layout.tagged:
            if each.is_fixed:
                yield from {CODES[each.field.kind], writing(CODES[each.field.kind])}


def _message_lines(part: Part) -> Iterator[str]:
    message, names, layouts = part.message, Names(part.message), Layouts(part.message)
    used = {layout.structure.name for layout in layouts.all()}
    for structure in reversed(message.structures.values()):
        if structure.name not in used:
            continue
        yield from ("", "")
        yield from class_lines(names, message, structure)
    yield from ("", "")
    for structure in message.structures.values():
        widths = [each for each in structure.fields if each.kind in CODES and not each.is_array]
        fixed = {each.name: writing(CODES[each.kind]) for each in widths}
        if fixed and structure.name in used:
            pairs = [f'"{name}": "{code}"' for name, code in fixed.items()]
            yield f"{names.of_codes(structure)}: Final = {{{', '.join(pairs)}}}"
    yield ""
    for layout in layouts.all():
        yield ""
        yield from reader_lines(names, message, layout)
        yield ""
        yield ""
        yield from writer_lines(names, message, layout)
        yield ""
    yield ""
    yield f"{part.codec}: Final = MessageCodec("
    yield f"    {names.of_class(message.name)},"
    yield "    {"
    for version, layout in layouts.by_version.items():
        pair = f"({names.of_function('read', layout)}, {names.of_function('write', layout)})"
        yield f"        {version}: {pair},"
    yield "    },"
    yield ")"
    yield ""


def _index(apis: list[tuple[str, Message]]) -> Iterator[str]:
    yield '"""The APIs by their keys.'
    yield ""
    yield _SOURCE
    yield '"""'
    yield ""
    yield "from __future__ import annotations"
    yield ""
    yield "from types import MappingProxyType"
    yield "from typing import Final"
    yield ""
    yield "from logbroker.kafka_wire.codec import Api"
    yield ""
    for name, message in apis:
        flexible = message.flexible_versions
        yield f"{snake(name).upper()}: Final = Api("
        yield f"    key={message.api_key},"
        yield f'    name="{name}",'
        yield f'    module="{snake(name)}",'
        yield f"    first_version={message.versions[0]},"
        yield f"    last_version={message.versions[-1]},"
        yield f"    last_stable_version={message.versions[-1] - message.is_latest_unstable},"
        yield f"    first_flexible_version={flexible[0] if flexible else None},"
        yield ")"
    yield ""
    yield "APIS: Final = MappingProxyType("
    yield "    {"
    yield "        api.key: api"
    yield "        for api in ("
    for name, _ in apis:
        yield f"            {snake(name).upper()},"
    yield "        )"
    yield "    }"
    yield ")"
    yield '"""All of them, by their keys."""'
