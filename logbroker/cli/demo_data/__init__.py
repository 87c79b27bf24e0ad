"""The flights that `logbroker demo` sends."""
