"""Dead letters: sent, found again, sent back.

It knows `machine` and `records`. Begin with `sender`.
"""
