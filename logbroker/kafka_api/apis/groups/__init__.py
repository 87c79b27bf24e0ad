"""The APIs of consumer groups by Kafka's classic protocol, and of their committed offsets."""
