"""Answers that a test orders for the next requests, instead of the usual ones."""

from __future__ import annotations

from dataclasses import dataclass

BUSY, SILENT = "busy", "silent"
BUSY_CONDITION = "com.microsoft:server-busy"
BUSY_TEXT = "The request was terminated because the namespace is being throttled. Please wait 10 seconds and try again."


@dataclass(slots=True)
class Faults:
    """Which kinds of requests fail, and for how many more; None is without end."""

    management: str | None = None
    receive: str | None = None
    unauthorized: bool = False
    count: int | None = None

    def on_management(self) -> str | None:
        """Return how the present management request fails, if it does."""
        return self._use(self.management)

    def on_receive(self) -> str | None:
        """Return how the present attachment or flow of a receiver fails, if it does."""
        return self._use(self.receive)

    def on_token(self) -> bool:
        """Return whether the present token is refused."""
        return self._use("unauthorized" if self.unauthorized else None) is not None

    def _use(self, fault: str | None) -> str | None:
        if fault is None or self.count == 0:
            return None
        if self.count is not None:
            self.count -= 1
        return fault
