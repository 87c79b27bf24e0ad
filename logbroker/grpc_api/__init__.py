"""The gRPC API: requests in, answers out.

It asks the broker, the groups and the queue groups by their own methods. Begin with `server`.
"""
