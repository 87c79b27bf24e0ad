"""Scans the batches of one log file. Good batches are yielded, damage is noted.

No CRC covers the base offset of a batch, so a good batch may be at a place where the log does not continue with its
offset. Such a batch is yielded nevertheless, also after damage. Offsets that go back are noted as faults. A caller that
needs one ascending log chooses from the batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from logbroker.record.header import HEADER_BYTES, BatchHeader
from logbroker.storage.recovery.log_scan import SearchBudget, header_like
from logbroker.tools.segments.batch_checks import (
    MAX_RELATIVE_OFFSET,
    Fault,
    content_fault,
    header_fault,
    place_fault,
)
from logbroker.tools.segments.log_file import LogFile

MAX_FAULTS: Final = 100
"""Maximum number of faults noted for a file."""

MAX_OFFSET: Final = 2**63 - 1

_SEARCH_BYTES: Final = 1 << 18
BRIEF_SECONDS: Final = 0.1
"""How long a scan waits at a damaged end if no broker is known to write."""
LIVE_SECONDS: Final = 2.0
"""How long a scan waits at a damaged end if a broker runs. If the end does not change in this time, it is damage and
not a write in progress."""
_LOOK_SECONDS: Final = 0.02


class LogScan:
    """One pass through a log file."""

    def __init__(
        self,
        log: LogFile,
        base_offset: int,
        *,
        gaps_allowed: bool = True,
        check_crc: bool = True,
        resume: bool = False,
        patience_seconds: float = 0.0,
        leader_epoch: int = -1,
    ) -> None:
        """With `base_offset` -1, the log may begin at any offset. `leader_epoch` is the last leader epoch of the
        segment before.

        With `resume`, the scan continues after damage, otherwise it ends there. `patience_seconds` says how long to
        wait for the end of an unfinished write: such a write grows or is cut off, and damage does not change.
        """
        self.faults: list[Fault] = []
        self.next_offset = max(0, base_offset)
        """The offset after the last good batch."""
        self.good_bytes = 0
        """The position at which the last good batch ends."""
        self.gaps = 0
        """Number of missing offsets, if gaps are allowed."""
        self._log = log
        self._base_offset = base_offset
        self._lowest_offset = self.next_offset
        self._highest_offset = base_offset + MAX_RELATIVE_OFFSET if base_offset >= 0 else MAX_OFFSET
        self._gaps_allowed = gaps_allowed
        self._check_crc = check_crc
        self._resume = resume
        self._patience_seconds = patience_seconds
        self._budget = SearchBudget(log.size_bytes)
        self._is_spent = False
        """Whether a search was given up, because too much looks like batches."""
        self.leader_epoch = leader_epoch

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of each good batch from `position` on. A batch must begin at `position`."""
        log = self._log
        after_damage = position > 0 or self._base_offset < 0
        while position < log.size_bytes:
            header = log.header(position)
            reason = self._damage(position, header)
            if reason is None:
                assert header is not None
                if self._base_offset < 0:
                    self._base_offset = header.base_offset
                # Damage explains missing offsets, but not that the log goes back.
                if not after_damage or header.base_offset < self.next_offset:
                    reason = self._misplaced(header)
                    if reason is not None:
                        self.faults.append(
                            Fault(
                                position=position, end=position, offset=self.next_offset, reason=reason, followed=True
                            )
                        )
                        if not self._resume or len(self.faults) >= MAX_FAULTS:
                            return
                    self.gaps += max(0, header.base_offset - self.next_offset)
                after_damage = False
                self.leader_epoch = header.leader_epoch
                self.next_offset = header.next_offset
                yield position, header
                position = self.good_bytes = position + header.size_bytes
                continue
            followed = self._next_good(position, header) if self._resume else -1
            if followed < 0 and self._changes(position):
                continue
            if self._is_spent:
                reason += "; more bytes that look like batches follow than can be checked"
            end = followed if followed >= 0 else log.size_bytes
            self.faults.append(
                Fault(position=position, end=end, offset=self.next_offset, reason=reason, followed=followed >= 0)
            )
            if followed < 0 or len(self.faults) >= MAX_FAULTS:
                return
            position = followed
            after_damage = True

    def _damage(self, position: int, header: BatchHeader | None) -> str | None:
        room = self._log.size_bytes - position
        if header is None:
            return f"{room} bytes are left, too few for a batch header"
        reason = header_fault(header, room)
        if reason is None and self._check_crc and self._log.batch_crc(position, header.size_bytes) != header.crc:
            reason = "its CRC-32C does not match its bytes"
        return reason or content_fault(header, gaps_allowed=self._gaps_allowed)

    def _misplaced(self, header: BatchHeader) -> str | None:
        return place_fault(
            header, self.next_offset, self._base_offset, self.leader_epoch, gaps_allowed=self._gaps_allowed
        )

    def _changes(self, position: int) -> bool:
        """Wait for a write that may be in progress. Return whether the file has changed: the write went on, is finished
        or was cut off."""
        size_bytes = self._log.size_bytes
        deadline = time.monotonic() + self._patience_seconds
        while time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            self._log.refresh()
            if self._log.size_bytes != size_bytes or self._damage(position, self._log.header(position)) is None:
                return True
        return False

    def _next_good(self, position: int, header: BatchHeader | None) -> int:
        """Return the position of the first good batch after damage at `position`, or -1 if there is none."""
        log = self._log
        if header is not None:
            # Usually only the records are damaged, and the length leads to the next batch. A damaged length may lead
            # too far.
            behind = position + header.size_bytes
            if position < behind < log.size_bytes and self._may_follow(behind, header.next_offset):
                return behind
        start = position + 1
        while start + HEADER_BYTES <= log.size_bytes:
            content = log.read(start, _SEARCH_BYTES + HEADER_BYTES)
            for found in header_like(content):
                if found >= _SEARCH_BYTES:
                    break
                if self._may_follow(start + found):
                    return start + found
                if self._is_spent:
                    return -1
            start += _SEARCH_BYTES
        return -1

    def _may_follow(self, position: int, offset: int | None = None) -> bool:
        """Return whether there is a good batch at `position`. If `offset` is given, the batch must begin at this
        offset."""
        header = self._log.header(position)
        if not self._budget.spend(0):
            self._is_spent = True
            return False
        if header is None or not self._lowest_offset <= header.base_offset <= self._highest_offset:
            return False
        if offset is not None and header.base_offset != offset:
            return False
        if header_fault(header, self._log.size_bytes - position) or content_fault(
            header, gaps_allowed=self._gaps_allowed
        ):
            return False
        if not self._budget.spend(header.size_bytes):
            self._is_spent = True
            return False
        # Check the CRC even if `check_crc` is false, because without it any bytes might pass.
        return self._log.batch_crc(position, header.size_bytes) == header.crc
