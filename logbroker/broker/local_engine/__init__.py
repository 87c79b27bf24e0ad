"""The log engine of one process on one machine: the only user of `logbroker.storage`.

The event loop decides (offsets, order, what is readable), threads do the file work of what was decided, and a failure
of that work is fatal. See docs/ARCHITECTURE.md, "Threads".
"""
