"""The topics of the cluster: followed by each gateway, and changed by the owner of home 0.

It opens the partitions of the log. Begin with `topic_rows`, then read `cluster_topics`.
"""
