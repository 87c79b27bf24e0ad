"""Partition logs on disk. Synchronous: no asyncio, no network.

It imports only packages of level 0 of docs/ARCHITECTURE.md, such as `record` and `errors`. Begin with `partition_log`.
"""
