"""Delivery: who waits for records, whose turn it is, what a message holds.

It knows `scan`, `machine` and `records`. Begin with `worker_stream`, then `dispatcher`.
"""
