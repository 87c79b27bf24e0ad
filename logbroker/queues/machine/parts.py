"""The parts of a queue group's state machine that hold state of records, for the code that moves records between
them."""

from __future__ import annotations

import msgspec

from logbroker.queues.machine.admission import Admission
from logbroker.queues.machine.lane_index import LaneIndex
from logbroker.queues.machine.leases import Deliveries
from logbroker.queues.machine.stalled_lanes import StalledLanes
from logbroker.queues.state.completion import DoneRecords
from logbroker.queues.state.dead_letter_intents import DeadLetters
from logbroker.queues.state.failures import Failures
from logbroker.queues.state.origins import Origins
from logbroker.queues.state.redelivery import Redelivery
from logbroker.queues.state.replacements import Replacements


class MachineParts(msgspec.Struct, frozen=True):
    """The parts of one state machine; the docstring of each says what it holds."""

    done: DoneRecords
    lanes: LaneIndex
    deliveries: Deliveries
    failures: Failures
    dead_letters: DeadLetters
    replacements: Replacements
    stalled: StalledLanes
    redelivery: Redelivery
    admission: Admission
    origins: Origins
