"""The disposable index that a group with priorities keeps on disk.

It knows `machine` and `records`. The files may be lost without harm. Begin with `cache`.
"""
