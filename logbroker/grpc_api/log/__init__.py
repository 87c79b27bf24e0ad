"""The service Log: produce and fetch, unary and streamed.

It asks the engine and the topics. Begin with `service`.
"""
