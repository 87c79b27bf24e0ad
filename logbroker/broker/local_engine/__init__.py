"""The log engine of one process on one machine: the only user of `logbroker.storage`.

The event loop decides on offsets, order and what is readable. Threads then do the file work; if file work fails, the
broker stops. See docs/ARCHITECTURE.md, "Threads".
"""
