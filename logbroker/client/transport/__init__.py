"""The way to the broker: connections, errors, metadata, offsets.

It knows `runtime`. Begin with `connection`.
"""
