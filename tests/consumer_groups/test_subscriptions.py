"""Topics that a subscription takes in, and patterns that are refused."""

from __future__ import annotations

import pytest

from logbroker.consumer_groups.assignors import AssignableTopic
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.errors import InvalidRequestError, InvalidTopicNameError
from logbroker.types import TopicId

TOPICS = {name: AssignableTopic(name, TopicId(name.encode().ljust(16)), 1) for name in ("orders", "orders-eu", "pay")}


def test_names_and_pattern_are_joined_and_unknown_names_wait() -> None:
    assert Subscription(("pay", "later")).resolve(TOPICS) == {"pay"}
    assert Subscription(("pay",), "orders.*").resolve(TOPICS) == {"pay", "orders", "orders-eu"}


def test_only_by_name_are_internal_topics_subscribed_to() -> None:
    topics = {name: AssignableTopic(name, TopicId(name.encode().ljust(16)), 1) for name in ("orders", "__queue.orders")}
    assert Subscription((), ".*").resolve(topics) == {"orders"}
    assert Subscription(("__queue.orders",), ".*").resolve(topics) == {"orders", "__queue.orders"}


def test_a_pattern_is_matched_against_the_whole_name() -> None:
    assert Subscription((), "orders").resolve(TOPICS) == {"orders"}
    assert Subscription((), "matches nothing").resolve(TOPICS) == frozenset()


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "a(?=b)", r"(a)\1", "((a{100}){100}){100}", "a" * 1001])
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequestError, match="pattern"):
        Subscription((), pattern).check()


def test_a_catastrophic_pattern_takes_linear_time() -> None:
    topics = {"a" * 249: AssignableTopic("a" * 249, TopicId(bytes(16)), 1)}
    assert Subscription((), "(a+)+b").resolve(topics) == frozenset()


@pytest.mark.parametrize("name", ["", "orders-.*", "a b", "a/b", "ö", "..", "a" * 250])
def test_a_name_that_no_topic_can_have_is_refused(name: str) -> None:
    """The member would wait for the topic for ever."""
    with pytest.raises(InvalidTopicNameError, match="no topic can have the name"):
        Subscription(("orders", name)).check()


def test_too_many_names_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="1001 topics"):
        Subscription(tuple(map(str, range(1001)))).check()
