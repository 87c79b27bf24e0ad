"""Urgency: the order in which lanes are handed out.

It knows `model`. Begin with `ready_queue`.
"""
