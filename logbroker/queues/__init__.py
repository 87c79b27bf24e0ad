"""Queue groups: which record goes to which worker, one in flight per key.

Others import this folder's own modules and `model` only. Begin with `group`; the machine is `machine.queue`.
"""
