"""The scan: it reads ahead in the log and feeds the state machine.

The modules here import `machine` and `records`. Begin with `scanner`.
"""
