"""Errors of the consumer protocol, with the codes that Kafka clients react to."""

from __future__ import annotations

from logbroker.errors import AssignorMismatchError, InvalidRequestError, MemberFencedError


class FencedMemberEpochError(MemberFencedError):
    """The heartbeat is of an epoch that the member does not have.

    Give up all partitions, and join again.
    """

    kafka_code = 110


class UnsupportedAssignorError(AssignorMismatchError):
    """The broker has no assignor of this name.

    Choose `uniform` or `range`, or none.
    """

    kafka_code = 112


class InvalidRegularExpressionError(InvalidRequestError):
    """The regular expression of a subscription cannot be used.

    Write it in RE2 syntax.
    """

    kafka_code = 128
