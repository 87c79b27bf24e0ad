"""Makes logbroker/kafka_wire from Kafka's message definitions: `make kafka-wire`. Needs a checkout; not in the wheel.

`definitions` reads the JSON files, `layouts` says how a structure lies in the bytes of one version, `texts` makes lines
of Python from a layout, and `modules` puts these together.
"""
