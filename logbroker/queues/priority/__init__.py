"""Urgency: the order in which lanes are handed out.

The modules here import `model`. Begin with `ready_queue`.
"""
