"""Retention: holding or copying the records that a queue group still needs.

The modules here import `machine` and `records`. Begin with `holder`.
"""
