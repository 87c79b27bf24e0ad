"""The runtime shared by both kinds of groups: rows, commits, timers and deadlines.

It uses the store, and depends on no kind of group. Begin with `group_commit`.
"""
