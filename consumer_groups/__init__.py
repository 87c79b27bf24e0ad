"""Consumer groups: who reads which partition, and up to where.

It knows the two seams of `logbroker.engine` and `group_runtime`. Begin with `coordinator`; the machine is `group`.
"""
