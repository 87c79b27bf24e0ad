"""`logbroker queue`: queue groups.

Begin with `commands`.
"""
