"""The connection to the broker: channels, errors, metadata, offsets.

It uses `runtime`. Begin reading with `connection`.
"""
