"""Urgency: in which order lanes are handed out.

It knows `model`. Begin with `ready_queue`.
"""
