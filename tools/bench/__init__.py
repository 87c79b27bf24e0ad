"""Load generators that measure a broker. Some also measure a bare gRPC server that does the same file work."""
