"""Numbers and texts without sense: every argument of every client refuses them at once, by its name, or takes them."""

from __future__ import annotations

import concurrent.futures
import inspect
import math
import threading
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from logbroker import LogbrokerError, client
from logbroker.client import sync
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import InvalidRequestError, RequestTimeoutError
from logbroker.types import TopicPartition

SURROGATE: Final = "a\ud800b"
HANGS_SECONDS: Final = 60
NUMBERS: Final = (math.nan, math.inf, -math.inf, -1, -0.5, 0, 1 << 31, 1 << 40, 1 << 63, 1 << 70, 1e300, True)
TEXTS: Final = (SURROGATE, "", "\0")
SENSELESS: Final = (math.nan, 1 << 70)
"""Values that no number may have."""

CLIENTS: Final = ("Producer", "Consumer", "Worker", "Admin", "QueueAdmin")
FIXED: Final = {
    "topics": "t",
    "topic": "t",
    "name": "t",
    "group": "g",
    "names": ["t"],
    "group_ids": ["g"],
    "groups": ["q"],
    "partition": TopicPartition("t", 0),
    "partitions": [TopicPartition("t", 0)],
    "offset": 0,
    "when": "earliest",
    "start": "earliest",
    "to": "earliest",
    "moment": 0,
    "key": b"k",
    "lane": b"k",
    "value": b"",
    "by": "none",
    "decision": "resume",
    "offsets": {TopicPartition("t", 0): 0},
    "settings": sync.QueueSettings(),
    "handler": lambda delivery: None,
}
"""Values of the other arguments. For methods of queues, "q" is the group."""
NOT_CALLED: Final = {"run", "sessions", "create_topic", "create_topics", "create_queue", "delete_topic", "delete_queue"}
"""Those that go on for ever with settings of sense, or change what the others need: below, with some values."""

OF_MEMBERS: Final = {"subscribe", "commit", "committed"}


@pytest.fixture(scope="module")
def address(logbroker_session_broker: EmbeddedBroker) -> str:
    with sync.Admin(logbroker_session_broker.address) as admin, sync.QueueAdmin(logbroker_session_broker.address) as q:
        admin.create_topic("t", 1, exist_ok=True)
        q.create_queue("q", "t")
        with sync.Producer(logbroker_session_broker.address) as producer:
            producer.send_and_wait("t", b"v", b"k")
    return logbroker_session_broker.address


def arguments_of(function: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Each argument that takes a number or a text, and what to try."""
    hints = typing.get_type_hints(function)
    for name in inspect.signature(function).parameters:
        kinds = {hints.get(name), *typing.get_args(hints.get(name))}
        values = (NUMBERS if kinds & {int, float} else ()) + (TEXTS if str in kinds else ())
        if values:
            yield name, values


def outcome(what: str, call: Callable[[], object]) -> BaseException | None:
    """Return what a call raises; fails where it hangs."""
    said: concurrent.futures.Future[BaseException | None] = concurrent.futures.Future()

    def work() -> None:
        try:
            call()
        except BaseException as error:
            said.set_result(error)
        else:
            said.set_result(None)

    threading.Thread(target=work, daemon=True).start()
    try:
        return said.result(HANGS_SECONDS)
    except TimeoutError:
        pytest.fail(f"{what} hangs")


def check(what: str, argument: str, value: Any, error: BaseException | None) -> str | None:
    """Return what is wrong with the answer to a value."""
    is_senseless = isinstance(value, bool) or value in (SURROGATE, *SENSELESS) or value != value
    if error is None:
        return f"{what} was taken" if is_senseless else None
    if isinstance(error, RequestTimeoutError) or not (type(error) is TypeError or isinstance(error, LogbrokerError)):
        return f"{what}: {error!r}"
    if is_senseless and not isinstance(error, TypeError | InvalidRequestError):
        # It was asked for, though it cannot have been meant.
        return f"{what} is only refused as {error!r}"
    is_named = argument in str(error) or str(value) in str(error)
    return None if is_named or isinstance(value, str) else f"{what} is not named: {error!r}"


@pytest.mark.parametrize("package", [client, sync], ids=["asyncio", "sync"])
@pytest.mark.parametrize("name", CLIENTS)
def test_a_setting_without_sense_is_refused_by_its_name(address: str, name: str, package: Any) -> None:
    made = getattr(package, name)
    given: dict[str, Any] = {"broker": address}
    if name == "Worker":
        given["group"] = "q"
    if name == "Consumer":
        given["group"] = "g"
    wrong = []
    for argument, values in arguments_of(made.__init__):
        for value in values:
            what = f"{name}({argument}={value!r})"
            wrong.append(check(what, argument, value, outcome(what, lambda: made(**given | {argument: value}))))  # noqa: B023
    found = [each for each in wrong if each]
    assert not found, chr(10).join(found)


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in CLIENTS), ("Consumer", {"group": "g"})])
def test_an_argument_without_sense_is_refused_by_its_name(address: str, name: str, options: dict[str, str]) -> None:
    made = getattr(sync, name)
    options = {"group": "q"} if name == "Worker" else options
    fixed = FIXED | ({"group": "q"} if name in ("QueueAdmin", "Worker") else {})
    wrong = []
    with made(address, **options) as used:
        if name == "Consumer":
            used.subscribe("t") if options else used.assign("t")
        for method, function in inspect.getmembers(made, inspect.isfunction):
            other = name == "Consumer" and (method in OF_MEMBERS) != bool(options)
            if method.startswith("_") or method in NOT_CALLED or other:
                continue
            for argument, values in arguments_of(function):
                for value in values:
                    if method == "poll" and not options:
                        used.seek(TopicPartition("t", 0), 0)  # Where another call may have led.
                    what = f"{name}.{method}({argument}={value!r})"
                    error = outcome(what, lambda: called(used, function, fixed, argument, value))  # noqa: B023
                    wrong.append(check(what, argument, value, error))
    found = [each for each in wrong if each]
    assert not found, chr(10).join(found)


def called(used: Any, function: Any, fixed: dict[str, Any], argument: str, value: Any) -> None:
    arguments: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            arguments += [value if name == argument else fixed[name]]
        elif name == argument or parameter.default is inspect.Parameter.empty:
            named[name] = value if name == argument else fixed[name]
    if function.__name__ == "poll" and argument != "timeout_seconds":
        named["timeout_seconds"] = 0
    found = function(used, *arguments, **named)
    if inspect.isgenerator(found) and argument in ("max_records", "max_bytes"):
        found.close()


EDGES: Final[list[tuple[str, Callable[[Any], Any], str]]] = [
    ("Admin", lambda a: a.create_topic("new", 1 << 31), "partitions|topics.*2147483648"),
    ("Admin", lambda a: a.create_topic("new", 1 << 70), "partitions"),
    ("Admin", lambda a: a.create_topic(SURROGATE), "name"),
    ("Admin", lambda a: a.create_topic("new", 1, {SURROGATE: "1"}), "configs"),
    ("Admin", lambda a: a.create_topics([sync.NewTopic("new", math.nan, {})]), r"topics\[0\]\.partitions"),  # type: ignore[arg-type]
    ("Admin", lambda a: a.list_offsets([TopicPartition("t", 1 << 31)], "earliest"), "partitions"),
    ("Admin", lambda a: a.list_offsets([TopicPartition(SURROGATE, 0)], "earliest"), "UTF-8"),
    ("Admin", lambda a: a.commit_offsets("g2", {TopicPartition("t", 0): 1 << 63}), "offsets"),
    ("QueueAdmin", lambda q: q.create_queue("q2", "t", sync.QueueSettings(lease_seconds=math.nan)), "lease_seconds"),
    ("QueueAdmin", lambda q: q.create_queue("q2", "t", sync.QueueSettings(lease_seconds=math.inf)), "lease_seconds"),
    ("QueueAdmin", lambda q: q.create_queue("q2", "t", sync.QueueSettings(max_attempts=1 << 40)), "settings"),
    ("QueueAdmin", lambda q: q.create_queue("q2", "t", sync.QueueSettings(key_header=SURROGATE)), "key_header"),
    ("QueueAdmin", lambda q: q.rewind("q", 0, partitions=[1 << 31]), "partitions"),
    ("QueueAdmin", lambda q: q.list_lanes("q", order="x"), "order takes"),
    ("QueueAdmin", lambda q: q.decide_all("q", "x"), "decision takes"),
    ("QueueAdmin", lambda q: q.replace_head("q", b"k", b"v", headers=[(SURROGATE, b"")]), "UTF-8|headers"),
    ("Producer", lambda p: p.send("t", b"", headers=[(SURROGATE, b"")]), "headers"),
    ("Producer", lambda p: p.send_and_wait("t", b"").offset.bit_length(), ""),
    ("Producer", lambda p: p.send("t", b"").result(math.nan), "timeout_seconds"),
    ("Consumer", lambda c: c.assign(TopicPartition("t", 1 << 31)), "partition 2147483648"),
    ("Consumer", lambda c: c.assign(TopicPartition(SURROGATE, 0)), "UTF-8"),
    ("Worker", lambda w: w.run(print, concurrency=0), "concurrency"),
    ("Worker", lambda w: w.run(print, concurrency=1 << 62), "concurrency"),
    ("Worker", lambda w: w.sessions(print, concurrency=1 << 62), "concurrency"),
    ("Worker", lambda w: w.sessions(print, prefetch=1 << 40), "prefetch"),
    ("Worker", lambda w: w.sessions(print, idle_seconds=math.nan), "idle_seconds"),
]


@pytest.mark.parametrize(("name", "call", "message"), EDGES)
def test_what_is_inside_of_an_argument(address: str, name: str, call: Callable[[Any], Any], message: str) -> None:
    with getattr(sync, name)(address, **({"group": "q"} if name == "Worker" else {})) as used:
        error = outcome(name, lambda: call(used))
    if not message:
        assert error is None
        return
    assert isinstance(error, LogbrokerError | TypeError), error
    with pytest.raises(type(error), match=message):
        raise error


def test_a_reason_that_no_text_can_say_settles_all_the_same(address: str) -> None:
    with sync.Admin(address) as admin, sync.Producer(address) as producer:
        admin.create_topic("failing", 1)
        producer.send_and_wait("failing", b"v", b"k")
    with sync.QueueAdmin(address) as queues, sync.Worker(address, "failing") as worker:
        queues.create_queue("failing", "failing")
        delivery = next(iter(worker))
        delivery.nack(reason=f"no such file: {SURROGATE}", delay_seconds=3600)
        delivery.result(HANGS_SECONDS)
        lane = queues.explain_lane("failing", b"k")
        assert lane.reasons == (r"no such file: a\ud800b",)
