"""Record batches and records: the codec, headers, keys. Pure, and fast.

It imports only `errors` and `texts`. Begin with `codec`.
"""
