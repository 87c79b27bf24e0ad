"""The producer: batches per partition, sent and sent again.

It knows `transport` and `runtime`. Begin with `producer`, then `accumulator`.
"""
