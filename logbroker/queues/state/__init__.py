"""The state of a queue group that survives a restart, as rows. Most modules keep one kind of row.

The modules here import `model`, and do no I/O. Begin with `rows`, then `change_set`.
"""
