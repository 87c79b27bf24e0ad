"""Queue groups: they hand single records to workers, at most one in flight per key.

Others import this folder's own modules, `model` and a worker's end of a stream (`delivery.worker_stream`) only. Begin
with `group`; the machine is `machine.queue`.
"""
