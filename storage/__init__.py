"""Partition logs on disk. Synchronous: no asyncio, no network.

It knows the record format and the files. Begin with `partition_log`.
"""
