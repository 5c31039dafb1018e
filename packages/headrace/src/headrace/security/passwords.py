"""Passwords: Argon2id hashes, and checking one takes as long for a user who does not exist."""

from __future__ import annotations

import secrets
import string
from functools import lru_cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from headrace.errors import BadSetting

LEAST_CHARACTERS = 8
_MOST_CHARACTERS = 1024
_hasher = PasswordHasher()


def require_good(text: str) -> None:
    """Refuse a password that is too short to be one."""
    if len(text) < LEAST_CHARACTERS:
        raise BadSetting(
            f"A password has at least {LEAST_CHARACTERS} characters.", hint="Choose a longer one; a sentence is good."
        )
    if len(text) > _MOST_CHARACTERS:
        raise BadSetting(f"A password has at most {_MOST_CHARACTERS} characters.", hint="Choose a shorter one.")


def hashed(text: str) -> str:
    """What is stored: with a salt of its own, so two equal passwords differ."""
    return _hasher.hash(text.encode("utf-8", "surrogatepass"))


def matches(stored: str | None, text: str) -> bool:
    """Whether this is the password. `stored` is None for a user who does not exist: the answer is no, after the same
    work."""
    given = text[:_MOST_CHARACTERS].encode("utf-8", "surrogatepass")
    try:
        fits = _hasher.verify(stored if stored is not None else _nobodys(), given)
    except (VerificationError, InvalidHashError):
        return False
    return bool(fits) and stored is not None and len(text) <= _MOST_CHARACTERS


def generated() -> str:
    """A password that nobody can guess, for the first administrator: of letters and digits, as it is copied by hand."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(20))


@lru_cache(maxsize=1)
def _nobodys() -> str:
    return hashed(secrets.token_urlsafe(32))
