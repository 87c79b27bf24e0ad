"""The service Queues: workers, sessions, operators.

It asks the queue groups by their own methods. Begin with `service`, then `worker_stream`.
"""
