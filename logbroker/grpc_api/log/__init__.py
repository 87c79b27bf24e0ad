"""The service Log: produce and fetch, unary and streamed.

It calls the engine. Begin with `service`.
"""
