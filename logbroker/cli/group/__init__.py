"""`logbroker group`: consumer groups.

Begin with `commands`.
"""
