"""Who somebody is, what their role lets them run, and how secrets are kept."""

from __future__ import annotations

import re

from headrace.errors import SyntaxFault
from headrace.sql.tokens import Kind, Token, scan

_MASK = "'***'"
_SECRET = re.compile(r"password|passwd|secret|token|credential|access[._]?key|account[._]?key", re.IGNORECASE)
_SECRET_SETTING = re.compile(r"password|passwd|secret|token|credential|key", re.IGNORECASE)
_FROM_PASSWORD_ON = re.compile(r"(\bUSER\b|\bNOTIFY\b|\bpass\w*).*", re.IGNORECASE | re.DOTALL)


def masked_sql(text: str) -> str:
    """The statement as it may be stored and logged: without the passwords in it, and without the addresses that alerts
    go to.

    In a statement about users every text in quotes is taken for a password, also where the rest is misspelled.

    >>> masked_sql("CREATE USER ann WITH PASSWORD 'it''s me' ROLE analyst")
    "CREATE USER ann WITH PASSWORD '***' ROLE analyst"
    >>> masked_sql("SELECT 'password' FROM t WHERE name = 'ann'")
    "SELECT 'password' FROM t WHERE name = 'ann'"
    """
    try:
        tokens = scan(text)
    except SyntaxFault:  # A quote that never ends: where the password ends is not known.
        has_secret = re.search(r"\bUSER\b|\bNOTIFY\b|pass", text, re.I)
        return _FROM_PASSWORD_ON.sub(rf"\1 {_MASK}", text) if has_secret else text
    pieces: list[str] = []
    done = 0
    about_user = notified = False
    for index, token in enumerate(tokens):
        if index == 0 or tokens[index - 1].text == ";":
            about_user = _is_about_user(tokens[index : index + 5])
        # NOTIFY 'https://…', 'mailto:…', wherever it stands: it may be the body of a task.
        notified = token.upper == "NOTIFY" or (notified and (token.kind is Kind.STRING or token.text == ","))
        if (notified and token.kind is Kind.STRING) or _is_secret(tokens, index, about_user):
            pieces += [text[done : token.start], _MASK]
            done = token.end
        elif token.upper == "SET" and (end := _secret_setting(tokens, index)) is not None:
            # What a setting is set to goes to the end of the statement, quoted or not.
            return "".join(pieces) + text[done:end] + f" {_MASK}"
    return "".join(pieces) + text[done:]


def _secret_setting(tokens: tuple[Token, ...], index: int) -> int | None:
    """Of `SET a.b.key = …`, where the value begins."""
    name = ""
    for token in tokens[index + 1 : index + 40]:
        if token.text == "=":
            return token.end if _SECRET_SETTING.search(name) else None
        if not (token.is_name or token.text in (".", "-")):
            return None
        name += token.text
    return None


def _is_about_user(first: tuple[Token, ...]) -> bool:
    words = [token.upper for token in first]
    return bool(words) and words[0] in ("CREATE", "ALTER") and "USER" in words


def _is_secret(tokens: tuple[Token, ...], index: int, about_user: bool) -> bool:
    token = tokens[index]
    before = tokens[index - 1] if index else None
    if about_user:
        return token.kind is Kind.STRING or (
            before is not None and (before.upper == "PASSWORD" or (before.text == "=" and token.upper != "PASSWORD"))
        )
    if before is not None and before.upper == "BY" and index > 1 and tokens[index - 2].upper == "IDENTIFIED":
        return True
    if token.kind is not Kind.STRING or before is None:
        return False
    # 'fs.secret.key' = 'x', password 'x' and password = "x", in options and properties.
    key = tokens[index - 2] if before.text == "=" and index > 1 else before
    if key.upper == "TOKEN":  # CREATE TOKEN 'name': the name is none.
        return False
    is_key = key.kind in (Kind.WORD, Kind.QUOTED) or (key.kind is Kind.STRING and before.text == "=")
    is_column = index > 2 and tokens[index - 3].upper in ("WHERE", "AND", "OR", "ON", "WHEN", "NOT")
    return is_key and not is_column and _SECRET.search(key.value) is not None
