"""Queue groups: which record goes to which worker, one in flight per key.

Others import this folder's own modules, `model` and a worker's end of a stream (`delivery.worker_stream`) only. Begin
with `group`; the machine is `machine.queue`.
"""
