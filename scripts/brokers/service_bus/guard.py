"""Keep a server running after an error in the handler of an event."""

from __future__ import annotations

import traceback
from typing import Any

from proton import ConnectionException, ProtonException  # type: ignore[import-not-found]


class Guarded:
    """Passes events to a handler, and prints an error of it instead of ending the process."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def on_unhandled(self, method: str, event: Any) -> None:
        """Pass an event."""
        handle = getattr(self._handler, method, None)
        if handle is None:
            return
        try:
            handle(event)
        except (ConnectionException, ProtonException, ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
            traceback.print_exc()
