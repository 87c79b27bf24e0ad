"""Argument checks. Each public method of a client checks its arguments against its annotations, and names a wrong
argument in its error.

Otherwise a wrong argument would fail later, as an error of protobuf or of a background task. Values of the right type
that protobuf refuses (numbers beyond a field's range, texts that UTF-8 cannot encode) raise InvalidRequestError here.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import itertools
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeVar, Union

import msgspec

from logbroker.errors import InvalidRecordError, InvalidRequestError, quoted
from logbroker.record.codec import NO_HEADERS, Headers, check_timestamp
from logbroker.record.message_headers import joined_key, with_sub_key
from logbroker.record.windows import MAX_HEADERS
from logbroker.types import TopicPartition

C = TypeVar("C", bound=type)
T = TypeVar("T")

SHORTEST_SECONDS: Final = 0.001
LONGEST_SECONDS: Final = 2_000_000
"""The longest time that fits the API's milliseconds."""
MAX_INT: Final = (1 << 63) - 1
_NO_TEXT: Final = "is a text that UTF-8 cannot encode"
_BEYOND_FIELD: Final = re.compile(r"Value out of range: (-?[0-9]+)")
"""Protobuf's message for this error, which has no exception class of its own."""

_MAX_LOOKED_AT: Final = 1000
"""Maximum number of elements of a list that are checked. Later elements are assumed to be of the same types."""
_CONVERTIBLE: Final[dict[type, tuple[type, ...]]] = {bytes: (bytes, bytearray, memoryview)}


def checks_arguments(*unchecked: str) -> Callable[[C], C]:
    """Return a class decorator that makes all public methods except these raise TypeError for wrong arguments."""

    def decorate(cls: C) -> C:
        for name, function in list(vars(cls).items()):
            public = not name.startswith("_") or name == "__init__"
            if public and name not in unchecked and inspect.isfunction(function):
                setattr(cls, name, _checked(function, cls.__name__ if name == "__init__" else name))
        return cls

    return decorate


def _checked(function: Any, name: str) -> Any:
    signature = inspect.signature(function)
    if len(signature.parameters) < 2:
        return function
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*arguments: Any, **named: Any) -> Any:
            arguments, named = check(function, name, arguments, named)
            try:
                return await function(*arguments, **named)
            except ValueError as error:
                if (refusal := _refusal(function, name, arguments, named, error)) is None:
                    raise
                raise refusal from None

        return call_async

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        arguments, named = check(function, name, arguments, named)
        try:
            return function(*arguments, **named)
        except ValueError as error:
            if (refusal := _refusal(function, name, arguments, named, error)) is None:
                raise
            raise refusal from None

    return call


def _refusal(
    function: Any, name: str, arguments: tuple[Any, ...], named: Mapping[str, Any], error: ValueError
) -> InvalidRequestError | None:
    """Return the error for arguments from which protobuf cannot build a message. Return None if the error is another
    one or comes from a function of the program."""
    if not _is_own(error):
        return None
    if isinstance(error, UnicodeEncodeError):
        return InvalidRequestError(f"{name}(): {quoted(error.object)} {_NO_TEXT}; give another one")
    found = _BEYOND_FIELD.match(str(error))
    if found is None:
        return None
    number = int(found[1])
    signature, _ = _hints(function)
    given = signature.bind(*arguments, **named).arguments.items()
    who = next((f"{parameter} " for parameter, value in given if parameter != "self" and _has(value, number)), "")
    return InvalidRequestError(f"{name}(): {who}is out of range with {number}; give a number nearer to 0")


def _is_own(error: Exception) -> bool:
    """Whether code of logbroker or of protobuf raised the error."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = "" if traceback is None else str(traceback.tb_frame.f_globals.get("__name__"))
    return module.partition(".")[0] in ("logbroker", "google")


def _has(value: Any, number: int) -> bool:
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.astuple(value)
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return any(_has(each, number) for each in value)
    return isinstance(value, int) and value == number


def check_seconds(*, shortest: float = SHORTEST_SECONDS, **times: float) -> None:
    """Raise InvalidRequestError for a time that is not a number or is out of range."""
    check_bounds(shortest, LONGEST_SECONDS, **times)


def check_bounds(least: float, most: float, **numbers: float) -> None:
    """Raise InvalidRequestError for a value that is not a number or is out of this range."""
    for name, number in numbers.items():
        if not least <= number <= most:
            raise InvalidRequestError(f"{name} must be between {least:,} and {most:,}, not {number}")


def check_wait(seconds: float | None) -> None:
    """Raise TypeError for a wait that is not a number. A negative number means no wait, and infinity means no limit."""
    if not fits(seconds, float | None):
        raise TypeError(f"timeout_seconds must be float or None, not {_what(seconds)}{_advice(seconds, float | None)}")


def choice(name: str, choices: Mapping[Any, T], value: object) -> T:
    """Return the value that a word stands for. Raises InvalidRequestError for an unknown word."""
    try:
        return choices[value]
    except KeyError:
        words = ", ".join(map(str, choices))
        raise InvalidRequestError(f"{name} takes {words}, not {quoted(str(value))}") from None


@functools.cache
def _hints(function: Any) -> tuple[inspect.Signature, dict[str, Any]]:
    signature = inspect.signature(function)
    try:
        return signature, typing.get_type_hints(function)
    except NameError:
        return signature, {}  # The annotations use names that are imported for type checkers only.


def check(
    function: Any, name: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments, with bytes in place of bytes-like objects, and lists in place of iterators, which can be
    read only once. Raises TypeError for the first argument that does not fit its annotation."""
    signature, hints = _hints(function)
    try:
        bound = signature.bind(*arguments, **named)
    except TypeError as error:
        raise TypeError(f"{name}(): {error}") from None
    has_iterator = False
    for parameter, value in bound.arguments.items():
        hint = hints.get(parameter)
        if isinstance(value, Iterator) and _takes_iterables(hint):
            bound.arguments[parameter] = value = list(value)
            has_iterator = True
        if hint is None or parameter == "self":
            continue
        kind = signature.parameters[parameter].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            for each in value:
                if not fits(each, hint):
                    advice = _advice(each, hint)
                    if isinstance(each, list | tuple | set | frozenset) and not hasattr(each, "_fields"):
                        advice = f": give each as an argument of its own, {name}(*{parameter})"
                    raise TypeError(f"{name}(): {parameter} must be {_shown(hint)}, not {_what(each)}{advice}")
        elif not fits(value, hint):
            raise TypeError(f"{name}(): {parameter} must be {_shown(hint)}, not {_what(value)}{_advice(value, hint)}")
    take_bytes = _take_bytes(function)
    if not (take_bytes or has_iterator):
        return arguments, named
    for parameter in take_bytes & bound.arguments.keys():
        bound.arguments[parameter] = as_bytes(f"{name}(): {parameter}", bound.arguments[parameter])
    return bound.args, bound.kwargs


def _takes_iterables(hint: Any) -> bool:
    return any(typing.get_origin(each) is Iterable for each in (hint, *typing.get_args(hint)))


@functools.cache
def _take_bytes(function: Any) -> frozenset[str]:
    """Return the parameters that may be or contain bytes."""
    _, hints = _hints(function)
    return frozenset(parameter for parameter, hint in hints.items() if _mentions_bytes(hint))


def _mentions_bytes(hint: Any) -> bool:
    return hint is bytes or any(map(_mentions_bytes, typing.get_args(hint)))


def as_bytes(name: str, value: Any) -> Any:
    """Return bytes in place of a bytes-like object, also within lists and tuples; a subclass of bytes or str becomes
    bytes or str itself, and anything else is returned unchanged. Raises TypeError, which names the value by `name`, if
    the object cannot be read."""
    if isinstance(value, bytearray | memoryview):
        try:
            return bytes(value)
        except ValueError as error:  # The memoryview was released.
            raise TypeError(f"{name} cannot be read: {error}") from None
    if isinstance(value, bytes) and type(value) is not bytes:
        return bytes(value)
    if isinstance(value, str) and type(value) is not str:
        return str.__str__(value)  # Such as the members of a StrEnum.
    if type(value) in (list, tuple):
        return type(value)(as_bytes(name, each) for each in value)
    return value


def check_fields(parameter: str, struct: msgspec.Struct) -> None:
    """Raise TypeError for the first field that does not fit its annotation."""
    for field, hint in _field_hints(type(struct)).items():
        value = getattr(struct, field)
        if not fits(value, hint):
            what = f"{_what(value)}{_advice(value, hint)}"
            raise TypeError(f"{parameter}.{field} must be {_shown(hint)}, not {what}")


@functools.cache
def _field_hints(struct: type[msgspec.Struct]) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(struct)
    except NameError:
        return {}  # As in `_hints`.
    return {field: hints[field] for field in struct.__struct_fields__ if field in hints}


def record_parts(
    topic: object,
    value: object,
    key: object,
    headers: object,
    partition: object,
    timestamp_ms: object,
    ordering_key: object,
    *,
    by_producer: bool = True,
) -> tuple[Any, Any, Any, Any]:
    """Return value, key, headers and ordering key as the codec takes them: bytes in place of bytes-like objects, and
    headers as a list. Raises TypeError for values that do not fit into a record, InvalidTimestampError for a time that
    a record cannot carry, and InvalidRecordError for more headers than are read. Called for a record that `try_append`
    refused, or that begins a batch. Without `by_producer`, the record is sent by a worker, which has no serializers."""
    check_one("send()", "topic", topic, str)
    for name, given in (("value", value), ("key", key)):
        if given is not None and not fits(given, bytes):
            way = "text.encode()" if isinstance(given, str) else f"json.dumps({name}).encode()"
            advice = f": encode it, {way}" if isinstance(given, str) or not by_producer else ""
            if by_producer:
                advice += f", or give the producer a {name}_serializer"
            raise TypeError(f"send(): {name} must be bytes or None, not {_what(given)}{advice}")
    if partition is not None:
        check_one("send()", "partition", partition, int | None)
    if timestamp_ms is not None:
        check_one("send()", "timestamp_ms", timestamp_ms, int | None)
        check_timestamp(timestamp_ms)  # type: ignore[arg-type]
    if ordering_key is not None:
        check_one("send()", "ordering_key", ordering_key, bytes | None)
    listed = [] if headers is NO_HEADERS else header_list(headers)
    parts = {"value": value, "key": key, "ordering_key": ordering_key}
    value, key, ordering_key = (as_bytes(f"send(): {name}", part) for name, part in parts.items())
    return value, key, listed, ordering_key


def header_list(headers: object) -> list[Any]:
    """Return the headers of a record as a list of pairs of a str and bytes or None. Raises TypeError, and
    InvalidRecordError for more headers than are read.

    This is the check of the argument `headers` for every path of `send`. Call it before anything else looks at them,
    unless they are `NO_HEADERS`.
    """
    if (type(headers) is list or type(headers) is tuple) and len(headers) <= MAX_HEADERS:
        for header in headers:
            if type(header) is not tuple or len(header) != 2:
                break
            name, content = header
            if type(name) is not str or not name.isascii() or (type(content) is not bytes and content is not None):
                break
        else:
            return list(headers)
    pairs = isinstance(headers, Iterable) and not isinstance(headers, str | bytes | Mapping)
    listed: list[Any] = list(headers) if pairs and isinstance(headers, Iterable) else []
    for header in listed:
        pairs = pairs and isinstance(header, tuple | list) and len(header) == 2
        pairs = pairs and fits(header[0], str) and fits(header[1], bytes | None)
    if not pairs:
        wanted = 'pairs of a name and bytes, [("name", b"value")]'
        raise TypeError(f"send(): headers must be {wanted}, not {_what(headers)}")
    if len(listed) > MAX_HEADERS:
        raise InvalidRecordError(f"a record has {len(listed)} headers; at most {MAX_HEADERS} are read")
    return [as_bytes("send(): headers", tuple(header)) for header in listed]


def sub_stream(key: Any, sub_key: Any, headers: Headers, *, by_producer: bool = True) -> tuple[bytes, Headers]:
    """Return the key and the headers of a record that is sent with a sub-key. Raises TypeError, and InvalidRequestError
    if there is no key. `by_producer` is as in `record_parts`."""
    if type(key) is not bytes or type(sub_key) is not bytes:
        check_one("send()", "sub_key", sub_key, bytes | None)
        if key is None:
            raise InvalidRequestError("send(): a sub_key without a key; give both, or the key alone")
        _, key, _, _ = record_parts("", None, key, (), None, None, None, by_producer=by_producer)
        sub_key = as_bytes("send(): sub_key", sub_key)
    return joined_key(key, sub_key), with_sub_key(headers, key, sub_key)


def check_one(method: str, name: str, value: object, hint: Any) -> None:
    """Raise TypeError if an argument of a method does not fit its annotation."""
    if not fits(value, hint):
        raise TypeError(f"{method}: {name} must be {_shown(hint)}, not {_what(value)}{_advice(value, hint)}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value fits a type hint, as far as this can be found out without consuming the value."""
    if hint is Any:
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in arguments)
    if origin is Literal:
        # Only the type is checked here. A value that is none of the choices gets its own error.
        return isinstance(value, tuple(map(type, arguments)))
    if hint is None or hint is type(None):
        return value is None
    if isinstance(origin, type):
        return _fits_generic(value, origin, arguments)
    if not isinstance(hint, type):
        return True
    if hint in (int, float) and isinstance(value, bool):
        return False
    if hint is int:
        return isinstance(value, int) and abs(value) <= MAX_INT
    if hint is float:
        return (isinstance(value, int) and abs(value) <= MAX_INT) or (
            isinstance(value, float) and not math.isnan(value)
        )
    if hint is str:
        return isinstance(value, str) and _is_utf8(value)
    return isinstance(value, _CONVERTIBLE.get(hint, (hint,))) and _fits_fields(value, hint)


def _fits_fields(value: Any, hint: type) -> bool:
    """Whether the fields of a named tuple fit, if the hint is one. Nothing else checks them; a string could pass as a
    partition number."""
    if not (issubclass(hint, tuple) and hasattr(hint, "_fields")):
        return True
    return all(fits(getattr(value, field), field_hint) for field, field_hint in _tuple_hints(hint).items())


@functools.cache
def _tuple_hints(hint: type) -> dict[str, Any]:
    return typing.get_type_hints(hint)


def _is_utf8(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _fits_generic(value: Any, origin: type, arguments: tuple[Any, ...]) -> bool:
    if issubclass(origin, Iterable) and (isinstance(value, str | bytes) or hasattr(value, "_fields")):
        return False  # A string as a list of characters, or a named tuple as a list of its fields, is never intended.
    if not isinstance(value, origin):
        return False
    if not arguments or not isinstance(value, collections.abc.Collection):
        return True
    if origin is tuple and Ellipsis not in arguments:
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    if isinstance(value, Mapping) and len(arguments) == 2:
        looked_at = itertools.islice(value.items(), _MAX_LOOKED_AT)
        return all(fits(key, arguments[0]) and fits(each, arguments[1]) for key, each in looked_at)
    return all(fits(each, arguments[0]) for each in itertools.islice(value, _MAX_LOOKED_AT))


def _what(value: Any) -> str:
    return "None" if value is None else f"{type(value).__name__} {quoted(value)}"


def _shown(hint: Any) -> str:
    if hint is type(None):
        return "None"
    if typing.get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_shown(each) for each in typing.get_args(hint))
    if isinstance(hint, type) and typing.get_origin(hint) is None:
        return hint.__name__
    if typing.get_origin(hint) is Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    if typing.get_origin(hint) is collections.abc.Callable:
        return "a function"
    return str(hint).replace("collections.abc.", "").replace("typing.", "").replace("logbroker.types.", "")


def _advice(value: Any, hint: Any) -> str:
    wanted = [hint, *typing.get_args(hint)]
    if isinstance(value, str) and bytes in wanted and str not in wanted:
        return ": encode it, text.encode()"
    if isinstance(value, bytes) and str in wanted:
        return ": decode it, name.decode()"
    if isinstance(value, tuple) and isinstance(hint, type) and issubclass(hint, tuple):
        return f": write {hint.__name__}(...)"
    if isinstance(value, str) and not _is_utf8(value):
        return f": it {_NO_TEXT}"
    if isinstance(value, float) and math.isnan(value):
        return ": it is no number"
    if isinstance(value, int) and abs(value) > MAX_INT:
        return ": it is larger than 64 bits can hold"
    return _advice_on_partition(value)


def _advice_on_partition(value: Any) -> str:
    """Name the wrong field of a partition, or of a partition in a list or mapping."""
    inside = () if isinstance(value, str | bytes) or not isinstance(value, collections.abc.Collection) else value
    for each in itertools.chain([value], itertools.islice(inside, _MAX_LOOKED_AT)):
        if isinstance(each, TopicPartition):
            for field, hint in _tuple_hints(TopicPartition).items():
                part = getattr(each, field)
                if not fits(part, hint):
                    return f": its {field} must be {_shown(hint)}, not {_what(part)}{_advice(part, hint)}"
    return ""
