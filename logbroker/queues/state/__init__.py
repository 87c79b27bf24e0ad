"""What survives a restart: the rows of a queue group, each kind kept by one module.

It knows `model` and no I/O. Begin with `rows`, then `change_set`.
"""
