"""The log engine of one process on one computer. In the broker, only it uses `logbroker.storage`.

The event loop decides on offsets, order and what is readable. Threads do most of the file work, above all syncs; writes
that need no sync are done on the event loop. If a write or a sync fails, the broker stops. See docs/ARCHITECTURE.md,
"Threads".
"""
