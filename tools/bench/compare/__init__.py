"""The same workload on logbroker and on what people would pick instead."""
