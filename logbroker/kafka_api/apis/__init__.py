"""The APIs of the Kafka protocol that the broker answers: one module each, named by its API.

Each module begins with what the API does here, and what its versions add; its last line registers it. A new one is also
listed in `table`. Those of admin clients are in `admin/`, and those of groups in `groups/`.
"""
