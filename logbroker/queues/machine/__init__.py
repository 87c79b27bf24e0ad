"""The state machine of one queue group: it decides, without I/O and without a clock.

The modules here import `model`, `state`, `priority` and the columns of `records`. Begin with `queue`.
"""
