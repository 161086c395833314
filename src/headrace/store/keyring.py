"""The keys that encrypt secrets. The first key encrypts, and all keys decrypt. An encrypted value is a Fernet token."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from hashlib import sha256

from cryptography.fernet import Fernet, InvalidToken

from headrace.errors import ApiRefused, SettingsError

HINT = "Start the API with the key that encrypted it (HEADRACE_FERNET_KEYS), or set it again."


class Keyring:
    """Encrypt and decrypt texts. A keyring without a key encrypts nothing, for stores without secrets."""

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
        """Return a number that identifies each key without revealing it, the first key's first."""
        return [int.from_bytes(hmac.digest(key, b"fingerprint", "sha256")[:8]) >> 2 for key in self._digest_keys]

    def encrypt(self, text: str) -> str:
        """Return `text`, encrypted with the first key."""
        return self._fernets[0].encrypt(text.encode()).decode() if self._fernets else text

    def decrypt(self, encrypted: str, what: str) -> str:
        """Return the decrypted text; `what` is its name in messages.

        Raises:
            ApiRefused: No key decrypts it.
        """
        if not self._fernets:
            return encrypted
        for fernet in self._fernets:
            try:
                return fernet.decrypt(encrypted.encode()).decode()
            except InvalidToken:
                continue
        raise ApiRefused(f"No key of this api opens {what}.", hint=HINT, status=409, problem="unreadable")

    def can_decrypt(self, encrypted: str) -> bool:
        """Return whether any key decrypts it."""
        try:
            self.decrypt(encrypted, "it")
        except ApiRefused:
            return False
        return True

    def is_current(self, encrypted: str) -> bool:
        """Return whether the first key decrypts it."""
        if not self._fernets:
            return True
        try:
            self._fernets[0].decrypt(encrypted.encode())
        except InvalidToken:
            return False
        return True

    def digest(self, text: str, what: str) -> str | None:
        """Return a keyed digest, for `same` to compare with another text for `what`. It reveals nothing without the key."""
        return _digest(self._digest_keys[0], text, what) if self._digest_keys else None

    def same(self, digest: str | None, text: str, what: str) -> bool:
        """Return whether `digest` is that of this text under any of the keys."""
        return digest is not None and any(hmac.compare_digest(_digest(key, text, what), digest) for key in self._digest_keys)


def _digest(key: bytes, text: str, what: str) -> str:
    return hmac.digest(key, f"{what}\0{text}".encode(), "sha256").hex()
