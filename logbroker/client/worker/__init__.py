"""The worker of a queue group: deliveries, leases, settlements, sessions.

It knows `transport` and `runtime`. Begin with `worker`, then `in_flight`.
"""
