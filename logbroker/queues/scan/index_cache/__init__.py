"""The disposable index that a group with priorities keeps on disk.

It knows `machine` and `records`; what it holds may be lost. Begin with `cache`.
"""
