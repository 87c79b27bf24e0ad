"""What groups of both kinds need to run: their rows, commits, timers and deadlines.

It knows the store and no kind of group. Begin with `group_commit`.
"""
