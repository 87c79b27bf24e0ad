"""Whatever a public method is called with, it takes it, or says what is wrong in words of this library.

Each parameter of each public method is given a crowd of values of wrong and right types, the others what they are for.
"""

from __future__ import annotations

import asyncio
import datetime
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from logbroker import client
from logbroker.client import NewTopic, QueueSettings, TopicPartition, sync
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.errors import LogbrokerError
from tests.client.worker_helpers import create, fill

NAME: Final = "crowded"
PART: Final = TopicPartition(NAME, 0)
MOMENT: Final = datetime.datetime(2026, 1, 1)  # noqa: DTZ001 - naive times are taken as local

VALUES: Final[list[Callable[[], Any]]] = [
    lambda: None,
    lambda: 5,
    lambda: -1,
    lambda: 1.5,
    lambda: float("nan"),
    lambda: float("-inf"),
    lambda: 1 << 70,
    lambda: True,
    lambda: "0",
    lambda: "",
    lambda: "\ud800",
    lambda: b"0",
    list,
    lambda: [5],
    lambda: [None],
    lambda: {NAME: 0},
    lambda: {PART: 0},
    lambda: {PART: "0"},
    lambda: {PART: -1},
    lambda: {TopicPartition(NAME, "0"): 0},  # type: ignore[arg-type]
    lambda: {5},
    lambda: {PART},
    lambda: range(2),
    lambda: iter([5]),
    lambda: iter([PART]),
    lambda: (name for name in [NAME]),
    object,
    lambda: PART,
    lambda: TopicPartition(NAME, "0"),  # type: ignore[arg-type]
    lambda: TopicPartition(NAME, True),
    lambda: TopicPartition(NAME, -1),
    lambda: TopicPartition(NAME, 1 << 40),
    lambda: TopicPartition(None, 0),  # type: ignore[arg-type]
    lambda: TopicPartition("\ud800", 0),
    lambda: [TopicPartition(NAME, "0")],  # type: ignore[arg-type]
    lambda: [PART, 5],
    lambda: datetime.datetime.min,  # noqa: DTZ901
    lambda: datetime.datetime.max,  # noqa: DTZ901
    lambda: datetime.datetime.min.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=14))),
    lambda: MOMENT,
    lambda: MOMENT.date(),
    lambda: datetime.timedelta.max,
    lambda: lambda *_: None,
]

USUAL: Final[dict[str, Any]] = {
    "by": "none",
    "concurrency": 1,
    "configs": None,
    "decision": "drop",
    "group": NAME,
    "group_ids": [NAME],
    "groups": [NAME],
    "handler": lambda _: asyncio.sleep(0),
    "key": b"0",
    "lane": b"0",
    "moment": 0,
    "name": NAME,
    "names": [NAME],
    "offset": 0,
    "offsets": {PART: 0},
    "partition": PART,
    "partitions": [PART],
    "settings": QueueSettings(),
    "to": "earliest",
    "topic": NAME,
    "topics": [NAME],
    "value": b"0",
    "when": "earliest",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with embedded() as broker:
        asyncio.run(_prepare(broker.address))
        yield broker


async def _prepare(address: str) -> None:
    await create(address, NAME)
    await fill(address, NAME, 3)
    async with client.Admin(address) as admin:
        await admin.create_topic("other")


SKIPPED: Final = {"close", "stop"}


async def use(outcome: Any) -> None:
    """Do what a program does with what was returned: await it, or begin to iterate."""
    if inspect.isawaitable(outcome):
        outcome = await outcome
    if inspect.isasyncgen(outcome):
        await anext(outcome, None)
        await outcome.aclose()


def parameters_of(function: Any) -> dict[str, inspect.Parameter]:
    return {name: each for name, each in inspect.signature(function).parameters.items() if name != "self"}


def arguments_with(
    parameters: dict[str, inspect.Parameter], wrong: str, value: Any, usual: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    several: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            several = [value] if name == wrong else []
        elif name == wrong:
            named[name] = value
        elif parameter.default is inspect.Parameter.empty:
            named[name] = usual[name]
    return several, named


def complaint(name: str, parameter: str, value: object, error: BaseException) -> str | None:
    """Return what is wrong with an error; None where it tells the program what it did."""
    if isinstance(error, LogbrokerError):
        return None
    if isinstance(error, TypeError | ValueError) and parameter in str(error):
        return None
    return f"{name}({parameter}={value!r}): {type(error).__name__}: {error}"


METHODS: Final = [
    (module, kind, name)
    for module in (client, sync)
    for kind in ("Producer", "Consumer", "Worker", "Admin", "QueueAdmin")
    for name, function in inspect.getmembers(getattr(sync, kind), inspect.isfunction)
    if not name.startswith("_") and name not in SKIPPED and parameters_of(function)
]


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize(("module", "kind", "name"), METHODS, ids=lambda each: getattr(each, "__name__", each))
async def test_a_method_takes_its_arguments_or_names_what_is_wrong(
    broker: EmbeddedBroker, module: Any, kind: str, name: str
) -> None:
    address = broker.address
    blocking = module is sync
    made = {
        "Consumer": lambda: module.Consumer(address, group=None if name == "assign" or "seek" in name else NAME + "-g"),
        "Worker": lambda: module.Worker(address, NAME),
    }.get(kind, lambda: getattr(module, kind)(address))()
    try:
        if kind == "Consumer" and "seek" in name:
            await use(await asyncio.to_thread(made.assign, PART) if blocking else made.assign(PART))
        complaints = []
        parameters = parameters_of(getattr(type(made), name))
        usual = USUAL | {"topics": [NewTopic("new")]} if kind == "Admin" else USUAL
        for parameter in parameters:
            for make in VALUES:
                value = make()
                several, named = arguments_with(parameters, parameter, value, usual)
                # What is right runs on.
                ending = asyncio.get_running_loop().call_later(0.1, made.stop) if kind == "Worker" else None
                try:
                    async with asyncio.timeout(10):
                        if blocking:
                            await asyncio.to_thread(_use_blocking, getattr(made, name), several, named)
                        else:
                            await use(getattr(made, name)(*several, **named))
                except Exception as error:
                    complaints.append(complaint(name, parameter, value, error))
                finally:
                    if ending is not None:
                        ending.cancel()
        assert not [each for each in complaints if each]
    finally:
        await use(await asyncio.to_thread(made.close) if blocking else made.close())


def _use_blocking(function: Any, several: list[Any], named: dict[str, Any]) -> None:
    outcome = function(*several, **named)
    if inspect.isgenerator(outcome):
        next(outcome, None)
        outcome.close()


@pytest.mark.parametrize("is_done", [False, True])
def test_a_wait_that_is_no_number_is_refused_whether_or_not_there_is_anything_to_wait_for(
    broker: EmbeddedBroker, is_done: bool
) -> None:
    with sync.Producer(broker.address, linger_ms=0 if is_done else 3_600_000) as producer:
        delivery = producer.send(NAME, b"")
        if is_done:
            producer.flush()
        with pytest.raises(TypeError, match="timeout_seconds must be float or None, not str"):
            delivery.result("a")  # type: ignore[arg-type]
