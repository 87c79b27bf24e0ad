"""Outputs of settlements: checking them, and appending them to their topics.

It knows `machine`, `records` and `state`. Begin with `sender`; `state/outbox.py` has the stored state.
"""
