"""Outputs of settlements: checking them, and appending them to their topics.

The modules here import `machine`, `records` and `state`. Begin with `sender`; `state/outbox.py` has the stored state.
"""
