"""Addresses at rest: encrypted with a key that is in the lake's folder and not in the operations database.

A webhook's address is a password: whoever has it can write there. So a copy of the database alone gives none away.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import secrets
import stat
import threading
from pathlib import Path

from headrace.errors import EnvironmentFault
from headrace.storage.durable import sync

FILE_NAME = "secret.key"

_log = logging.getLogger(__name__)
_FORM = "v1:"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_making = threading.Lock()
_warned_of: set[Path] = set()


class Unreadable(Exception):
    """What was sealed cannot be opened here: the key is another one, or gone, or the text was changed."""


class Seal:
    """Seals and opens texts of one lake. `purpose` ties a sealed text to the thing that it belongs to: under another
    one it does not open."""

    def __init__(self, lake: Path) -> None:
        self._file = lake / FILE_NAME

    def seal(self, text: str, purpose: str) -> str:
        """The text encrypted. The first time, this makes the key."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # Only who has alerts waits for it to load.

        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = AESGCM(self._made_key()).encrypt(nonce, text.encode(), purpose.encode())
        return _FORM + base64.urlsafe_b64encode(nonce + sealed).decode("ascii")

    def open(self, sealed: str, purpose: str) -> str:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._key()
        if key is None:
            raise Unreadable(f"The key {self._file} is not there.")
        try:
            parts = base64.urlsafe_b64decode(sealed.removeprefix(_FORM).encode("ascii"))
            opened = AESGCM(key).decrypt(parts[:_NONCE_BYTES], parts[_NONCE_BYTES:], purpose.encode())
        except (InvalidTag, ValueError, binascii.Error):
            raise Unreadable(f"It was not sealed with the key {self._file}.") from None
        return opened.decode()

    def fingerprint(self, text: str) -> str:
        """Tells texts apart, and nothing else about them."""
        return hmac.new(self._made_key(), b"fingerprint:" + text.encode(), hashlib.sha256).hexdigest()[:16]

    def _made_key(self) -> bytes:
        key = self._key()
        if key is not None:
            return key
        with _making:  # One process holds a lake, so its threads are all that could make two.
            return self._key() or self._new_key()

    def _new_key(self) -> bytes:
        key = secrets.token_bytes(_KEY_BYTES)
        # Written beside it first: a key that is cut short would be worse than none.
        beside = self._file.with_name(f"{FILE_NAME}.new")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            beside.unlink(missing_ok=True)
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(key)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._file)
            sync(self._file.parent)  # Or else a power cut could take the key, and leave what was sealed with it.
        except OSError as error:
            raise EnvironmentFault(
                f"The key {self._file} cannot be written: {error.strerror}.",
                hint="Check that the lake's folder may be written to.",
            ) from None
        return key

    def _key(self) -> bytes | None:
        try:
            with open(self._file, "rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                key = file.read(_KEY_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EnvironmentFault(
                f"The key {self._file} cannot be read: {error.strerror}.",
                hint="Give it back to the user who runs Headrace, with mode 0600.",
            ) from None
        if len(key) != _KEY_BYTES:
            raise EnvironmentFault(
                f"The file {self._file} is no key: it must have {_KEY_BYTES} bytes.",
                hint="Put the right one back from a backup, or remove it and create the alerts anew.",
            )
        if mode & (stat.S_IRWXG | stat.S_IRWXO) and self._file not in _warned_of:
            _warned_of.add(self._file)
            _log.warning("Others than its owner may use the key %s: set its mode to 0600.", self._file)
        return key
