"""Delivery: the line of waiting workers, their turns, and the messages that they get.

The modules here import `scan`, `machine` and `records`. Begin with `worker_stream`, then `dispatcher`.
"""
