"""A process of its own whose threads all call synchronous clients for the first time, at once.

`python -m tests.client.first_calls ADDRESS SEED [SHARED]` prints one line of JSON: what came of each call, how many
threads with an event loop there are then, and whether all clients still serve. With SHARED, all threads use one client
of each class.
"""

from __future__ import annotations

import inspect
import json
import random
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from logbroker.client import sync
from logbroker.client.sync import NewTopic, QueueSettings, TopicPartition
from logbroker.errors import LogbrokerError

DEADLINE_SECONDS: Final = 40
NOWHERE: Final = TopicPartition("nowhere", 0)

# What is there already: topic and group `t`, queue group `q`. Everything else is refused, which is an answer, too.
ARGUMENTS: Final[dict[str, dict[str, tuple[Any, ...]]]] = {
    "Admin": {
        "create_topic": ("made",),
        "create_topics": ([NewTopic("made")],),
        "list_topics": (),
        "describe_topic": ("t",),
        "describe_topics": (["t"],),
        "alter_topic": ("t",),
        "delete_topic": ("nowhere",),
        "delete_topics": (["nowhere"],),
        "delete_records": ({TopicPartition("nowhere", 0): None},),
        "list_offsets": ([TopicPartition("t", 0)], "latest"),
        "list_groups": (),
        "describe_group": ("nowhere",),
        "describe_groups": (["nowhere"],),
        "group_lag": ("nowhere",),
        "delete_group": ("nowhere",),
        "delete_groups": (["nowhere"],),
        "fetch_offsets": ("nowhere",),
        "commit_offsets": ("t", {TopicPartition("t", 0): 0}),
        "describe_broker": (),
        "close": (),
    },
    "QueueAdmin": {
        "create_queue": ("made", "t", QueueSettings()),
        "list_queues": (),
        "describe_queue": ("q",),
        "describe_queues": (["q"],),
        "alter_queue": ("q", QueueSettings()),
        "delete_queue": ("nowhere",),
        "list_lanes": ("q",),
        "explain_lane": ("q", b"key"),
        "resume_lane": ("q", b"key"),
        "skip_head": ("q", b"key"),
        "drop_lane": ("q", b"key"),
        "replace_head": ("q", b"key", b"value"),
        "split_lane": ("q", b"other", "none"),
        "join_lane": ("q", b"other"),
        "decide_all": ("q", "resume"),
        "list_letters": ("q",),
        "redrive": ("q",),
        "rewind": ("q", "earliest"),
        "close": (),
    },
    "Producer": {
        "send": ("t", b"value"),
        "send_and_wait": ("t", b"value"),
        "flush": (),
        "close": (),
    },
    "Consumer": {
        "subscribe": ("t",),
        "commit": (),
        "committed": ([NOWHERE],),
        "assign": ("t",),
        "assignment": (),
        "position": (NOWHERE,),
        "seek": (NOWHERE, 0),
        "seek_to_time": (NOWHERE, 0),
        "seek_to_beginning": (NOWHERE,),
        "seek_to_end": (NOWHERE,),
        "pause": (NOWHERE,),
        "resume": (NOWHERE,),
        "beginning_offsets": ([TopicPartition("t", 0)],),
        "end_offsets": ([TopicPartition("t", 0)],),
        "until_end": (),
        "batches": (),
        "merged": ("nowhere",),
        "poll": (),
        "close": (),
    },
    "Worker": {
        "batches": (),
        "run": (print,),
        "session": (b"key",),
        "sessions": (print,),
        "flush": (),
        "stop": (),
        "close": (),
    },
}


def public_methods(name: str) -> set[str]:
    return {
        method
        for method, _ in inspect.getmembers(getattr(sync, name), inspect.isfunction)
        if not method.startswith("_")
    }


def make(name: str, address: str) -> Any:
    options: dict[str, Any] = {"request_timeout_seconds": 20}
    arguments = (address, "nowhere") if name == "Worker" else (address,)
    return getattr(sync, name)(*arguments, **options)


def call(client: Any, method: str, arguments: tuple[Any, ...]) -> str:
    """Call, wait for the answer, and tell of it."""
    try:
        outcome = getattr(client, method)(*arguments)
        if isinstance(outcome, sync.Session):
            outcome.open()
        elif inspect.isgenerator(outcome):
            next(outcome, None)
        elif isinstance(outcome, sync.Delivery):
            outcome.result(DEADLINE_SECONDS)
    except LogbrokerError as error:
        # A broker that cannot be reached is no answer.
        return "lost" if error.reason in ("BROKER_UNAVAILABLE", "REQUEST_TIMEOUT") else "refused"
    except BaseException as error:
        return repr(error)
    return "done"


def calls(address: str, shared: bool) -> list[tuple[str, Callable[[], str]]]:
    clients = {name: make(name, address) for name in ARGUMENTS} if shared else {}

    def one(name: str, method: str, arguments: tuple[Any, ...]) -> Callable[[], str]:
        return lambda: call(clients.get(name) or make(name, address), method, arguments)

    return [
        (f"{name}.{method}", one(name, method, arguments))
        for name, methods in ARGUMENTS.items()
        for method, arguments in methods.items()
        # Of one client that all threads share, nobody is to be cut off; a consumer is one thread's.
        if not shared or (name in ("Admin", "QueueAdmin") and method != "close")
    ]


def main() -> None:
    address, seed, *shared = sys.argv[1:]
    wanted = calls(address, bool(shared))
    random.Random(int(seed)).shuffle(wanted)
    barrier = threading.Barrier(len(wanted))
    outcomes = {name: "hangs" for name, _ in wanted}

    def work(name: str, first_call: Callable[[], str]) -> None:
        barrier.wait()
        outcomes[name] = first_call()

    threads = [threading.Thread(target=work, args=item, daemon=True) for item in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    loops = sum(thread.name == "logbroker-client" for thread in threading.enumerate())
    later = call(sync.Admin(address), "list_topics", ())
    sys.stdout.write(json.dumps({"outcomes": outcomes, "loops": loops, "later": later}) + "\n")


if __name__ == "__main__":
    main()
