"""Messages of the Kafka protocol, one module per API, generated from proto/kafka by `make kafka-wire`."""
