"""Plain values of queue groups: settings, record ids, lanes, messages.

The modules here import no other part of queue groups. Begin with `messages`.
"""
