"""The runtime shared by both kinds of groups: rows, commits, timers and deadlines.

It knows the store and no kind of group. Begin with `group_commit`.
"""
