"""The keys that secrets are kept under: the first of them seals, all of them open. A value that is sealed is a Fernet token."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from hashlib import sha256

from cryptography.fernet import Fernet, InvalidToken

from headrace.errors import ApiRefused, SettingsError

HINT = "Start the API with the key that encrypted it (HEADRACE_FERNET_KEYS), or set it again."


class Keyring:
    """Seals and opens texts. Without any key nothing is sealed: for stores that hold no secrets."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        try:
            self._fernets = [Fernet(key) for key in keys]
        except ValueError as error:
            raise SettingsError(
                "A key in HEADRACE_FERNET_KEYS is not one: each is 32 bytes in URL-safe base64.",
                hint="Make one with: headrace secrets new-key",
            ) from error
        self._digest_keys = [sha256(b"headrace digest:" + key.encode()).digest() for key in keys]

    def __bool__(self) -> bool:
        return bool(self._fernets)

    @property
    def fingerprints(self) -> list[int]:
        """A number for each key that names it and says nothing about it, the first key's first."""
        return [int.from_bytes(hmac.digest(key, b"fingerprint", "sha256")[:8]) >> 2 for key in self._digest_keys]

    def seal(self, text: str) -> str:
        """Return `text` sealed with the first key."""
        return self._fernets[0].encrypt(text.encode()).decode() if self._fernets else text

    def open(self, kept: str, what: str) -> str:
        """Return the text that was sealed; `what` names it.

        Raises:
            ApiRefused: No key opens it.
        """
        if not self._fernets:
            return kept
        for fernet in self._fernets:
            try:
                return fernet.decrypt(kept.encode()).decode()
            except InvalidToken:
                continue
        raise ApiRefused(f"No key of this api opens {what}.", hint=HINT, status=409, problem="unreadable")

    def opens(self, kept: str) -> bool:
        """Whether any key opens it."""
        try:
            self.open(kept, "it")
        except ApiRefused:
            return False
        return True

    def is_current(self, kept: str) -> bool:
        """Whether the first key opens it."""
        if not self._fernets:
            return True
        try:
            self._fernets[0].decrypt(kept.encode())
        except InvalidToken:
            return False
        return True

    def digest(self, text: str, what: str) -> str | None:
        """Return what tells, by `same`, whether another text for `what` is equal to this one; worth nothing without the key."""
        return _digest(self._digest_keys[0], text, what) if self._digest_keys else None

    def same(self, digest: str | None, text: str, what: str) -> bool:
        """Whether `digest` was made, with any of the keys, of this text."""
        return digest is not None and any(hmac.compare_digest(_digest(key, text, what), digest) for key in self._digest_keys)


def _digest(key: bytes, text: str, what: str) -> str:
    return hmac.digest(key, f"{what}\0{text}".encode(), "sha256").hex()
