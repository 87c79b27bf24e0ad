"""Consumer groups: the members that read each partition, and their committed offsets.

It knows the two seams of `logbroker.engine` and `group_runtime`. Begin with `coordinator`; the state machine is
`group`.
"""
