"""The parts of a queue group's machine that know of its records, for those that move records between them."""

from __future__ import annotations

import msgspec

from logbroker.queues.dead_letters import DeadLetters
from logbroker.queues.deliveries import Deliveries
from logbroker.queues.done import DoneRecords
from logbroker.queues.held import HeldLanes
from logbroker.queues.intake import Intake
from logbroker.queues.lanes import Lanes
from logbroker.queues.origins import Origins
from logbroker.queues.redelivery import Redelivery
from logbroker.queues.replacements import Replacements
from logbroker.queues.retry import Failures


class Parts(msgspec.Struct, frozen=True):
    """Each has a docstring that says what it knows."""

    done: DoneRecords
    lanes: Lanes
    deliveries: Deliveries
    failures: Failures
    dead_letters: DeadLetters
    replacements: Replacements
    held: HeldLanes
    redelivery: Redelivery
    intake: Intake
    origins: Origins
