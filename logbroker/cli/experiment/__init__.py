"""`logbroker experiment`: experiments with partitions and order.

Begin with `commands`.
"""
