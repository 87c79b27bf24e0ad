"""Load generators that measure a broker, each beside a bare gRPC server that does the same file work."""
