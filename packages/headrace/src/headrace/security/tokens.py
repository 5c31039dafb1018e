"""API tokens. The text is shown once; only its digest is kept.

A plain digest is enough: the text is 256 random bits, so there is nothing to guess that hashing slowly would help.
"""

from __future__ import annotations

import hashlib
import secrets

PREFIX = "hr_"


def new() -> tuple[str, str]:
    """A token's text, and the digest to keep."""
    text = PREFIX + secrets.token_urlsafe(32)
    return text, digest_of(text)


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
