"""Wrong arguments are named: each public method of a client checks what it is given against its annotations.

Else they would show where they are used: as a fault of protobuf, or of a task in the background.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeVar, Union

from logbroker.errors import quoted

C = TypeVar("C", bound=type)

_MAX_LOOKED_AT: Final = 1000
"""Elements of a list; what lies behind is as the first ones."""
_CONVERTIBLE: Final[dict[type, tuple[type, ...]]] = {float: (int, float), bytes: (bytes, bytearray, memoryview)}


def checks_arguments(*unchecked: str) -> Callable[[C], C]:
    """Return a class decorator that has all public methods but these raise TypeError for wrong arguments."""

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
            check(function, name, arguments, named)
            return await function(*arguments, **named)

        return call_async

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        check(function, name, arguments, named)
        return function(*arguments, **named)

    return call


@functools.cache
def _hints(function: Any) -> tuple[inspect.Signature, dict[str, Any]]:
    signature = inspect.signature(function)
    try:
        return signature, typing.get_type_hints(function)
    except NameError:
        return signature, {}  # It names what is there for type checkers alone.


def check(function: Any, name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Raise TypeError for the first argument that is not what its annotation says."""
    signature, hints = _hints(function)
    try:
        bound = signature.bind(*arguments, **named)
    except TypeError as error:
        raise TypeError(f"{name}(): {error}") from None
    for parameter, value in bound.arguments.items():
        hint = hints.get(parameter)
        if hint is None or parameter == "self":
            continue
        kind = signature.parameters[parameter].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            for each in value:
                if not fits(each, hint):
                    advice = ""
                    if isinstance(each, list | tuple | set | frozenset):
                        advice = f": give each as an argument of its own, {name}(*{parameter})"
                    raise TypeError(f"{name}(): {parameter} must be {_shown(hint)}, not {_what(each)}{advice}")
        elif not fits(value, hint):
            raise TypeError(f"{name}(): {parameter} must be {_shown(hint)}, not {_what(value)}{_advice(value, hint)}")


def check_record(
    topic: object,
    value: object,
    key: object,
    headers: object,
    partition: object,
    timestamp_ms: object,
    ordering_key: object,
) -> None:
    """Raise TypeError for what no record can be made of. Called where one was refused, or begins a batch."""
    _check_one("topic", topic, str)
    for name, given in (("value", value), ("key", key)):
        if given is not None and not fits(given, bytes):
            advice = f", or give the producer a {name}_serializer"
            advice = f": encode it, text.encode(){advice}" if isinstance(given, str) else advice
            raise TypeError(f"send(): {name} must be bytes or None, not {_what(given)}{advice}")
    _check_one("partition", partition, int | None)
    _check_one("timestamp_ms", timestamp_ms, int | None)
    _check_one("ordering_key", ordering_key, bytes | None)
    pairs = isinstance(headers, Iterable) and not isinstance(headers, str | bytes | Mapping)
    for header in headers if pairs and isinstance(headers, list | tuple) else ():
        pairs = pairs and isinstance(header, tuple | list) and len(header) == 2
        pairs = pairs and isinstance(header[0], str) and fits(header[1], bytes | None)
    if not pairs:
        wanted = 'pairs of a name and bytes, [("name", b"value")]'
        raise TypeError(f"send(): headers must be {wanted}, not {_what(headers)}")


def _check_one(name: str, value: object, hint: Any) -> None:
    if not fits(value, hint):
        raise TypeError(f"send(): {name} must be {_shown(hint)}, not {_what(value)}{_advice(value, hint)}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is what a type hint says, as far as can be told without using it up."""
    if hint is Any:
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in arguments)
    if origin is Literal:
        # Which one of them is another question, with an answer of its own.
        return isinstance(value, tuple(map(type, arguments)))
    if hint is None or hint is type(None):
        return value is None
    if isinstance(origin, type):
        return _fits_generic(value, origin, arguments)
    if not isinstance(hint, type):
        return True
    if issubclass(hint, tuple):
        return isinstance(value, tuple)
    return isinstance(value, _CONVERTIBLE.get(hint, (hint,)))


def _fits_generic(value: Any, origin: type, arguments: tuple[Any, ...]) -> bool:
    if isinstance(value, str | bytes) and issubclass(origin, Iterable):
        return False  # A list of characters is never meant.
    if not isinstance(value, origin):
        return False
    if not arguments or not isinstance(value, list | tuple | set | frozenset | dict):
        return True
    looked_at = list(value.items() if isinstance(value, dict) else value)[:_MAX_LOOKED_AT]
    if isinstance(value, dict):
        if len(arguments) != 2:
            return all(fits(key, arguments[0]) for key, _ in looked_at)
        return all(fits(key, arguments[0]) and fits(each, arguments[1]) for key, each in looked_at)
    return len(arguments) != 1 or all(fits(each, arguments[0]) for each in looked_at)


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
    return ""
