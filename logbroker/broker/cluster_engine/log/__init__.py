"""The partitions of the cluster's topics: appends in order, raw reads, and offsets that are kept fresh.

It uses the connection only. Begin with `remote_partition`.
"""
