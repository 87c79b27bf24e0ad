"""The gRPC API: it reads requests, calls methods of the broker, the groups and the queue groups, and writes the
answers.

Begin with `server`.
"""
