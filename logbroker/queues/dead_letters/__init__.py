"""Dead letters: sending them, finding them, and redriving them.

It knows `machine` and `records`. Begin with `sender`.
"""
