"""The state of groups as rows of a compacted topic: claimed, read up to the claim, and then committed to.

It uses the connection only. Begin with `state_partition`.
"""
