"""The APIs of admin clients: topics, their configs and records, and what the broker tells of itself."""
