"""The waiting time of records, computed from the utilisation of the servers that work on them."""

from __future__ import annotations

import math


def utilisation(rate: float, service_seconds: float, servers: int) -> float:
    """Return the share of their time that the servers work. With 1 or more, they do not keep up."""
    return rate * service_seconds / servers


def erlang_c(servers: int, offered: float) -> float:
    """Return the probability that a record finds all servers busy, in M/M/c.

    A. K. Erlang, "Solution of some problems in the theory of probabilities of significance in automatic telephone
    exchanges" (1917). `offered` is the rate times the service time, and must be below `servers`. The recursion of
    Erlang's B is used, because it does not overflow.
    """
    blocking = 1.0
    for server in range(1, servers + 1):
        blocking = offered * blocking / (server + offered * blocking)
    load = offered / servers
    return blocking / (1 - load + load * blocking)


def mean_wait_seconds(
    rate: float, service_seconds: float, servers: int = 1, *, arrival_scv: float = 1.0, service_scv: float = 0.0
) -> float:
    """Return the mean time before the work on a record begins. It is infinite if the servers do not keep up.

    It is the wait of M/M/c (Erlang C), times the mean of the squared coefficients of variation of arrivals and of
    service: A. O. Allen, "Probability, Statistics, and Queueing Theory" (1990), ch. 5, the Allen-Cunneen approximation
    of G/G/c. With one server it is J. F. C. Kingman's formula, "The single server queue in heavy traffic" (1961). By
    default arrivals are random (Poisson) and the work on each record takes equally long.
    """
    offered = rate * service_seconds
    if offered >= servers:
        return math.inf
    if offered <= 0:
        return 0.0
    waiting = erlang_c(servers, offered) * service_seconds / (servers - offered)
    return waiting * (arrival_scv + service_scv) / 2
