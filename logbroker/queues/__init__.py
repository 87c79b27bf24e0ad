"""Queue groups: they hand single records to workers, at most one in flight per key.

Other packages import only the modules that lie directly in this folder, `model`, and `delivery.worker_stream`, a
worker's end of a stream. Begin with `group`; the state machine is `machine.queue`.
"""
