"""The disposable index that a group with priorities keeps on disk.

The modules here import `machine` and `records`. The files may be lost without harm. Begin with `cache`.
"""
