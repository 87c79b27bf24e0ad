"""Reads varints: 7 bits in each byte, the lowest bits first, as in record batches and Protobuf messages.

Source: protobuf.dev, "Encoding". A signed number of a record is zigzag-encoded first: 0, -1, 1, -2, ...
"""

from __future__ import annotations


def read_varint(buffer: bytes | bytearray, position: int) -> tuple[int, int]:
    """Return the unsigned 64-bit number at a position, and the position after the number.

    Raises IndexError if the bytes end within the number, or if it is longer than 64 bits can be.
    """
    number = buffer[position]
    position += 1
    if number < 0x80:
        return number, position
    number &= 0x7F
    for shift in range(7, 70, 7):
        byte = buffer[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, position
    raise IndexError("a number of more than 10 bytes")
