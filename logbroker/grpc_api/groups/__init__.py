"""The service Groups: members, offsets, descriptions.

It asks the consumer groups, and the queue groups for lists. Begin with `service`.
"""
