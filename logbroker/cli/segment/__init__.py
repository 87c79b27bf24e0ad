"""`logbroker segment`: the files of a log.

Begin with `commands`.
"""
