"""The worker of a queue group: deliveries, leases, settlements, sessions.

It uses `transport` and `runtime`. Begin reading with `worker`, then `in_flight`.
"""
