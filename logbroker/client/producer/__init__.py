"""The producer: collects records into a batch per partition, sends the batches and repeats them.

It uses `transport` and `runtime`. Begin reading with `producer`, then `accumulator`.
"""
