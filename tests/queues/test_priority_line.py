"""The order of lanes with priorities is that of a model, whatever happens."""

from __future__ import annotations

from hypothesis import settings

from tests.queues.priority_stateful import PriorityMachine

TestPriorityLine = PriorityMachine.TestCase
TestPriorityLine.settings = settings(max_examples=60, stateful_step_count=30, report_multiple_bugs=False)
