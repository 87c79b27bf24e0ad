"""Keys and values in JSON: text or, if the bytes are not UTF-8, base64 with the name of the encoding beside it."""

from __future__ import annotations

import base64

import msgspec

Text = str | None
Unset = msgspec.UnsetType


def text_of(content: bytes | None) -> tuple[Text, str | Unset]:
    """Return the text and the name of its encoding, which is unset for UTF-8."""
    if content is None:
        return None, msgspec.UNSET
    try:
        return content.decode("utf-8"), msgspec.UNSET
    except UnicodeDecodeError:
        return base64.b64encode(content).decode("ascii"), "base64"
