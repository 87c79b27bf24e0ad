"""One owner at any time, no orphan once quiet, epochs that only grow: whatever happens, and with bugs planted."""

from __future__ import annotations

from hypothesis import settings

from tests.consumer_groups.stateful import GroupMachine

TestGroup = GroupMachine.TestCase
TestGroup.settings = settings(max_examples=150, stateful_step_count=40)
