"""The state of a queue group that survives a restart, as rows. Each module keeps one kind of row.

It knows `model` and no I/O. Begin with `rows`, then `change_set`.
"""
