"""Retention: records that have to outlive it are held, or copied.

It knows `machine` and `records`. Begin with `holder`.
"""
