"""The service Queues: workers, sessions, operators.

It calls the methods of the queue groups. Begin with `service`, then `worker_stream`.
"""
