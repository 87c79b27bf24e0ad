"""Lines of Python for a structure: its class, and the functions that read and write one layout."""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Iterator
from typing import Final

from wiregen.definitions import Field, Message, Structure
from wiregen.layouts import CODES, WIDTHS, Layout, WireField

WIDTH: Final = 120
_TYPES: Final = {"bool": "bool", "string": "str", "bytes": "bytes", "records": "Buffer", "uuid": "bytes"}
_DEFAULTS: Final = {"bool": "False", "string": '""', "bytes": 'b""', "uuid": "NO_UUID"}
_OWN_NAMES: Final = frozenset(
    ("data", "at", "end", "count", "items", "found", "number", "tags", "last", "stop", "list", "range")
)
"""Names in a reader that are not those of fields."""
_WORDS: Final = re.compile(r"[A-Z][a-z0-9]*")


class Names:
    """The Python names of a message: its classes, functions and precompiled structs."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._classes = {name: self._class_name(name) for name in message.structures}
        if len(set(self._classes.values())) < len(self._classes):
            raise ValueError(f"{message.name}: two structures would have one name")

    def of_class(self, name: str) -> str:
        return self._classes[name]

    def of_function(self, verb: str, layout: Layout) -> str:
        return f"_{verb}_{snake(self.of_class(layout.structure.name))}_v{layout.first_version}"

    def of_codes(self, structure: Structure) -> str:
        return f"_{snake(self.of_class(structure.name)).upper()}_CODES"

    def _class_name(self, name: str) -> str:
        """Begin with the name of the message, once: FetchRequest has FetchTopic, which is called FetchRequestTopic."""
        words, own = _WORDS.findall(name), _WORDS.findall(self._message.name)
        if name == self._message.name or "".join(words) != name:
            return name
        rest = list(words)
        for word in own:
            if not rest or rest[0] != word:
                break
            rest.pop(0)
        if len(rest) > 1 and rest[-1] in ("Request", "Response"):
            rest.pop()
        return self._message.name + "".join(rest or words)


def snake(name: str) -> str:
    return "_".join(_WORDS.findall(name)).lower()


def struct_name(codes: str) -> str:
    """Return the name of a precompiled struct: "iqq" is _INT32_INT64X2."""
    names = {"?": "BOOL", "b": "INT8", "h": "INT16", "i": "INT32", "q": "INT64", "16s": "UUID", "B": "TAGS"}
    parts = []
    for run in re.finditer(r"(16s|.)\1*", codes):
        times = len(run[0]) // len(run[1])
        parts.append(names[run[1]] + (f"X{times}" if times > 1 else ""))
    return "_" + "_".join(parts)


# --- classes -------------------------------------------------------------------------------------------------------


def class_lines(names: Names, message: Message, structure: Structure) -> Iterator[str]:
    yield f"class {names.of_class(structure.name)}(msgspec.Struct, kw_only=True, gc=False):"
    if structure is message.top:
        yield f'    """{message.name}, versions {message.versions[0]} to {message.versions[-1]}."""'
        yield ""
    elif structure.about:
        yield from _docstring(structure.about)
        yield ""
    if not structure.fields:
        yield "    pass"
    for each in structure.fields:
        if keyword.iskeyword(each.name):
            raise ValueError(f"{each.name} cannot be the name of an attribute")
        yield f"    {each.name}: {_annotation(names, message, each)} = {_class_default(names, each)}"
        yield from _docstring(each.about[:1].upper() + each.about[1:] + _facts(message, each))


def _docstring(text: str) -> Iterator[str]:
    text = text.replace("\\", "\\\\")
    lines = textwrap.wrap(text, WIDTH - 10)
    lines[0] = f'"""{lines[0]}'
    lines[-1] += '"""'
    yield from (f"    {line}" for line in lines)


def _facts(message: Message, each: Field) -> str:
    """Return type, versions and kind of a field, as far as they say more than its class does."""
    said = [] if each.is_structure else [each.kind]
    known = [version for version in message.versions if version in each.versions]
    if known != list(message.versions):
        said.append(f"version {known[0]}" if len(known) == 1 else f"versions {known[0]} to {known[-1]}")
        said += ["ignorable"] * each.is_ignorable
    return f" ({', '.join(said)})" if said else ""


def local(each: Field) -> str:
    """Return the name of a variable for a field."""
    return f"{each.name}_" if each.name in _OWN_NAMES else each.name


def _annotation(names: Names, message: Message, each: Field) -> str:
    base = names.of_class(each.kind) if each.is_structure else _TYPES.get(each.kind, "int")
    text = f"list[{base}]" if each.is_array else base
    return f"{text} | None" if _may_be_null(message, each) else text


def _may_be_null(message: Message, each: Field) -> bool:
    is_nullable = any(version in each.nullable_versions for version in message.versions)
    return is_nullable or is_default_null(each)


def is_default_null(each: Field) -> bool:
    """Whether None stands for the default. A tagged structure that is not sent is None, too."""
    is_tagged_structure = each.is_structure and not each.is_array and len(each.tagged_versions) > 0
    return each.default == "null" or each.kind == "records" or is_tagged_structure


def default_of(each: Field) -> str:
    """Return the default of a field that is no structure, as Python."""
    if is_default_null(each):
        return "None"
    if each.is_array:
        return "[]"
    if each.kind == "bool":
        return each.default.capitalize() or "False"
    if each.kind == "string":
        return f'"{each.default}"'
    if each.kind in _DEFAULTS:
        if each.default:
            raise ValueError(f"{each.name}: the default {each.default} is not known here")
        return _DEFAULTS[each.kind]
    return str(int(each.default, 0)) if each.default else "0"


def _class_default(names: Names, each: Field) -> str:
    if each.is_structure and not each.is_array and not is_default_null(each):
        return f"msgspec.field(default_factory={names.of_class(each.kind)})"
    return default_of(each)


# --- runs of fixed-width fields ------------------------------------------------------------------------------------


Run = list[WireField]


def runs(layout: Layout) -> Iterator[tuple[Run, WireField | None, bool]]:
    """Part the fields: a run of fixed-width ones, then one of another kind or the end of the structure.

    The third part says whether the run takes the count of tagged fields with it, which is one byte as long as it is 0.
    """
    run: Run = []
    for each in layout.fields:
        if each.is_fixed:
            run.append(each)
        else:
            yield run, each, False
            run = []
    yield run, None, bool(run) and layout.is_flexible and not layout.tagged


def run_codes(run: Run, takes_tags: bool) -> str:
    return "".join(CODES[each.field.kind] for each in run) + "B" * takes_tags


def writing(codes: str) -> str:
    """Return the codes for writing: "?" takes any object, so that a null would be written as False."""
    return codes.replace("?", "b")


# --- readers -------------------------------------------------------------------------------------------------------


def reader_lines(names: Names, message: Message, layout: Layout) -> Iterator[str]:
    cls = names.of_class(layout.structure.name)
    head = f"def {names.of_function('read', layout)}(data: Buffer, at: int, end: int, count: int)"
    yield f"{head} -> tuple[list[{cls}], int]:"
    if not (layout.fields or layout.tagged or layout.is_flexible):
        yield f"    return [{cls}() for _ in range(count)], at"
        return
    yield f"    items: list[{cls}] = []"
    yield "    for _ in range(count):"
    for run, other, takes_tags in runs(layout):
        if run:
            yield from _read_run(cls, run, takes_tags)
        if other is not None:
            yield from _read_field(names, cls, other, 8, "end")
        elif layout.tagged:
            yield from _read_tagged(names, message, cls, layout)
        elif takes_tags:
            yield "        if tags:"
            yield f'            at = skip_tags(data, at - 1, end, "{cls}")'
        elif layout.is_flexible:
            yield f'        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "{cls}")'
    values = [f"{each.field.name}={local(each.field)}" for each in (*layout.fields, *layout.tagged)]
    yield f"        items.append({cls}({', '.join(values)}))"
    yield "    return items, at"


def _read_run(cls: str, run: Run, takes_tags: bool) -> Iterator[str]:
    width = sum(WIDTHS[each.field.kind] for each in run) + takes_tags
    targets = [local(each.field) for each in run] + ["tags"] * takes_tags
    yield f"        if end - at < {width}:"
    yield f'            raise cut_short("{run_text(cls, run)}", at, end, {width})'
    unpack = f"{struct_name(run_codes(run, takes_tags))}.unpack_from(data, at)"
    yield f"        ({targets[0]},) = {unpack}" if len(targets) == 1 else f"        {', '.join(targets)} = {unpack}"
    yield f"        at += {width}"


def run_text(cls: str, run: Run) -> str:
    first, last = run[0].field.name, run[-1].field.name
    return f"{cls}.{first}" if len(run) == 1 else f"{cls}.{first} to {last}"


def _read_field(names: Names, cls: str, each: WireField, indent: int, end: str) -> Iterator[str]:
    """Read a field that is not part of a run."""
    pad, name, label = " " * indent, local(each.field), f'"{cls}.{each.field.name}"'
    if each.is_fixed:
        width = WIDTHS[each.field.kind]
        yield f"{pad}if {end} - at < {width}:"
        yield f"{pad}    raise cut_short({label}, at, {end}, {width})"
        yield f"{pad}({name},) = {struct_name(CODES[each.field.kind])}.unpack_from(data, at)"
        yield f"{pad}at += {width}"
    elif each.field.is_array:
        count = f"read_{style(each)}count(data, at, {end}, {each.element_bytes}, {label})"
        yield f"{pad}number, at = {count}"
        if each.is_nullable:
            yield f"{pad}{name} = None"
            yield f"{pad}if number >= 0:"
            pad += "    "
        yield f"{pad}{name}, at = {_elements(names, cls, each, end)}"
    elif each.layout is not None and each.is_nullable:
        yield f"{pad}number, at = read_presence(data, at, {end}, {label})"
        yield f"{pad}found, at = {names.of_function('read', each.layout)}(data, at, {end}, number)"
        yield f"{pad}{name} = found[0] if found else None"
    elif each.layout is not None:
        yield f"{pad}[{name}], at = {names.of_function('read', each.layout)}(data, at, {end}, 1)"
    else:
        yield f"{pad}{name}, at = read_{style(each)}{each.field.kind}(data, at, {end}, {label})"


def _elements(names: Names, cls: str, each: WireField, end: str) -> str:
    if each.layout is not None:
        return f"{names.of_function('read', each.layout)}(data, at, {end}, number)"
    if each.field.kind == "string":
        compact = "compact_" if each.is_compact else ""
        return f'read_{compact}strings(data, at, {end}, number, "{cls}.{each.field.name}")'
    return "read_int32s(data, at, number)"


def style(each: WireField) -> str:
    """Return the part of a primitive's name that says how it is encoded."""
    return "compact_" * each.is_compact + "nullable_" * each.is_nullable


def _read_tagged(names: Names, message: Message, cls: str, layout: Layout) -> Iterator[str]:
    for each in layout.tagged:
        yield f"        {local(each.field)}{_annotated(names, message, each)} = {default_of(each.field)}"
    yield f'        tags, at = read_uvarint(data, at, end, "{cls}")'
    yield "        last = -1"
    yield "        for _ in range(tags):"
    yield f'            last, at, stop = read_tag(data, at, end, last, "{cls}")'
    word = "if"
    for each in layout.tagged:
        yield f"            {word} last == {each.field.tag}:"
        yield from _read_field(names, cls, each, 16, "stop")
        yield f'                check_tag_end(at, stop, "{cls}.{each.field.name}")'
        word = "elif"
    yield "            at = stop"


def _annotated(names: Names, message: Message, each: WireField) -> str:
    return f": {_annotation(names, message, each.field)}" if each.field.is_array or is_default_null(each.field) else ""


# --- writers -------------------------------------------------------------------------------------------------------


def writer_lines(names: Names, message: Message, layout: Layout) -> Iterator[str]:
    cls = names.of_class(layout.structure.name)
    yield f"def {names.of_function('write', layout)}(out: Parts, items: Sequence[{cls}]) -> None:"
    body = list(_writer_body(names, cls, layout))
    if not body:
        yield '    """Write nothing: this version has no fields."""'
        return
    if any(each.is_fixed for each in (*layout.fields, *layout.tagged)):
        yield "    try:"
        yield "        for item in items:"
        yield from (f"    {line}" for line in body)
        yield "    except struct.error:"
        yield f"        raise misfit(items, {names.of_codes(layout.structure)}) from None"
    else:
        yield "    for item in items:"
        yield from body


def _writer_body(names: Names, cls: str, layout: Layout) -> Iterator[str]:
    for unknown in layout.unknown:
        yield f"        if {_differs(unknown)}:"
        yield f'            raise unknown_field("{cls}.{unknown.name}", item.{unknown.name})'
    for run, other, takes_tags in runs(layout):
        for each in run:
            if each.field.kind == "uuid":
                yield f'        check_uuid(item.{each.field.name}, "{cls}.{each.field.name}")'
        if run:
            values = [f"item.{each.field.name}" for each in run] + ["0"] * takes_tags
            yield f"        out.append({struct_name(writing(run_codes(run, takes_tags)))}.pack({', '.join(values)}))"
        if other is not None:
            yield from _write_field(names, cls, other, 8, "out")
        elif layout.tagged:
            yield from _write_tagged(names, cls, layout)
        elif layout.is_flexible and not takes_tags:
            yield "        out.append(NO_TAGS)"


def _differs(each: Field) -> str:
    """Return the condition for a value that is not the default."""
    default = default_of(each) if is_default_null(each) or not each.is_structure or each.is_array else None
    if default is None:
        raise ValueError(f"{each.name}: a structure that is not tagged cannot be compared with its default")
    value = f"item.{each.name}"
    if default == "None":
        if each.is_structure and not each.is_array and each.default != "null":
            return f"{value} is not None and {value} != type({value})()"
        return f"{value} is not None"
    if each.kind == "bool" and not each.is_array:
        return f"{value} is not {default}"
    return f"{value} != {default}"


def _write_field(names: Names, cls: str, each: WireField, indent: int, out: str) -> Iterator[str]:
    pad = " " * indent
    label, value = f'"{cls}.{each.field.name}"', f"item.{each.field.name}"
    if each.is_fixed:
        if each.field.kind == "uuid":
            yield f"{pad}check_uuid({value}, {label})"
        yield f"{pad}{out}.append({struct_name(writing(CODES[each.field.kind]))}.pack({value}))"
    elif each.field.is_array:
        counted = f"write_{style(each)}count({out}, {value}, {label})"
        if each.layout is not None:
            yield f"{pad}{names.of_function('write', each.layout)}({out}, {counted})"
        elif each.field.kind == "string":
            yield f"{pad}write_{'compact_' * each.is_compact}strings({out}, {counted}, {label})"
        else:
            yield f"{pad}write_int32s({out}, {counted}, {label})"
    elif each.layout is not None and each.is_nullable:
        yield f"{pad}{names.of_function('write', each.layout)}({out}, write_presence({out}, {value}))"
    elif each.layout is not None:
        yield f"{pad}{names.of_function('write', each.layout)}({out}, required({value}, {label}))"
    else:
        kind = "bytes" if each.field.kind == "records" else each.field.kind
        yield f"{pad}write_{style(each)}{kind}({out}, {value}, {label})"


def _write_tagged(names: Names, cls: str, layout: Layout) -> Iterator[str]:
    yield "        tagged: list[tuple[int, Parts]] = []"
    for each in layout.tagged:
        yield f"        if {_differs(each.field)}:"
        yield "            part: Parts = []" if each is layout.tagged[0] else "            part = []"
        yield from _write_field(names, cls, each, 12, "part")
        yield f"            tagged.append(({each.field.tag}, part))"
    yield "        write_tags(out, tagged)"
