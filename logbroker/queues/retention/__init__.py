"""Retention: holding or copying the records that a queue group still needs.

It knows `machine` and `records`. Begin with `holder`.
"""
