"""The scan: it reads ahead in the log and feeds the machine.

It knows `machine` and `records`. Begin with `scanner`.
"""
