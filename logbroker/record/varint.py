"""Numbers of seven bits a byte, the lowest first, as records in a batch and Protobuf's messages have them.

Source: protobuf.dev, "Encoding". Signed numbers of a record are such a number after zigzag: 0, -1, 1, -2, ...
"""

from __future__ import annotations


def read_varint(buffer: bytes | bytearray, position: int) -> tuple[int, int]:
    """Return the number at a position, of 64 bits and without a sign, and the position behind it.

    Raises IndexError where the bytes end before, or it is longer than a number can be.
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
