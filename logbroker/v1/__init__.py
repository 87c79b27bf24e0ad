"""Protobuf messages of the API, generated from proto/logbroker/v1 by `make proto`."""
