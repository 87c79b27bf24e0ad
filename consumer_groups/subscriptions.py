"""Subscriptions of members: topics by name and by a pattern over names, with all or some of their bands.

Patterns have RE2 syntax and are matched against whole names. RE2 matches in time linear in the name, whatever the
pattern. A pattern that would need too much memory is refused when it is compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import re2

from logbroker.consumer_groups.assignors import AssignableTopic
from logbroker.errors import InvalidRequestError, InvalidTopicNameError, quoted
from logbroker.record.bands import is_band_name
from logbroker.types import INTERNAL_PREFIX, MAX_TOPIC_CHARACTERS, is_topic_name

MAX_TOPICS: Final = 1_000
MAX_PATTERN_CHARACTERS: Final = 1_000
MAX_BANDS: Final = 100
_MAX_PATTERN_MEMORY_BYTES: Final = 1024 * 1024


class Subscription(msgspec.Struct, frozen=True):
    """Names of topics, which need not exist yet, together with the topics that match the pattern and are not
    internal."""

    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    """Pattern over topic names; empty: none."""
    bands: tuple[str, ...] = ()
    """Names of bands. Topics that have bands, now or later, are read only in these; (): in all."""

    def check(self) -> None:
        """Raise InvalidRequestError if a bound is exceeded, a name is none of a topic, or the pattern is not valid."""
        if len(self.topics) > MAX_TOPICS:
            raise InvalidRequestError(
                f"the subscription names {len(self.topics)} topics; at most {MAX_TOPICS} are taken: use a topic pattern"
            )
        for name in self.topics:
            if not is_topic_name(name):
                raise InvalidTopicNameError(
                    f"no topic can have the name {quoted(name)} that the subscription names: use 1 to"
                    f" {MAX_TOPIC_CHARACTERS} of a-z, A-Z, 0-9, '.', '_' and '-', or a topic pattern"
                )
        if len(self.topic_pattern) > MAX_PATTERN_CHARACTERS:
            raise InvalidRequestError(
                f"the topic pattern has {len(self.topic_pattern)} characters;"
                f" at most {MAX_PATTERN_CHARACTERS} are taken"
            )
        if self.topic_pattern:
            _compiled(self.topic_pattern)
        if len(self.bands) > MAX_BANDS:
            raise InvalidRequestError(
                f"the subscription names {len(self.bands)} bands; at most {MAX_BANDS} are taken; name fewer, or none to"
                " read all bands"
            )
        for name in self.bands:
            if not is_band_name(name):
                raise InvalidRequestError(f"{quoted(name)} is not the name of a band, such as hot or cold")

    def resolve(self, topics: Mapping[str, AssignableTopic]) -> frozenset[str]:
        """Return the names of the existing topics that are subscribed to."""
        names = {name for name in self.topics if name in topics}
        if self.topic_pattern:
            matches = _compiled(self.topic_pattern).fullmatch
            names.update(name for name in topics if matches(name) and not name.startswith(INTERNAL_PREFIX))
        return frozenset(names)


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.max_mem = _MAX_PATTERN_MEMORY_BYTES
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else error
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise InvalidRequestError(
            f"the topic pattern {quoted(pattern)} cannot be used: {text}; write it in RE2 syntax"
        ) from None
