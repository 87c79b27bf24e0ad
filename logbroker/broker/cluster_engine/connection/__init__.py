"""The connection of a gateway to its cluster: nodes and leaders, raw requests, and the meaning of Kafka's error codes.

It knows the cluster's protocol and nothing of what is kept there. Begin with `link`.
"""
