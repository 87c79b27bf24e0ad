"""The service Groups: members, offsets, descriptions.

It calls the consumer groups, and the queue groups for lists of groups. Begin with `service`.
"""
