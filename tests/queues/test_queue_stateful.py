"""One in flight per lane, in order, none idle, nothing lost, repeats marked: whatever happens."""

from __future__ import annotations

from hypothesis import settings

from tests.queues.ranked_stateful import RankedMachine
from tests.queues.session_stateful import SessionMachine

TestQueueWithPriorities = RankedMachine.TestCase
TestQueueWithPriorities.settings = settings(max_examples=100, stateful_step_count=40, report_multiple_bugs=False)

TestQueue = SessionMachine.TestCase
TestQueue.settings = settings(max_examples=150, stateful_step_count=40, report_multiple_bugs=False)
