"""Queue groups: which record goes to which worker, one in flight per key.

Others import this folder's own modules, a worker's end of a stream (`delivery.worker_stream`) and `model` only. Begin with `group`; the machine is `machine.queue`.
"""
