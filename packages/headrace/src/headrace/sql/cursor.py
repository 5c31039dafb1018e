"""A place in a row of tokens, and the few moves a recursive-descent parser makes from it."""

from __future__ import annotations

from headrace.errors import Position, SyntaxFault, UserError
from headrace.names import check_parts
from headrace.sql.tokens import Kind, Token, position_at, scan

_MAX_DIGITS = 18


class Cursor:
    """Moves over one statement. `form` is how the statement is written; every fault shows it as the hint."""

    def __init__(self, text: str, tokens: tuple[Token, ...] | None = None, form: str | None = None) -> None:
        self.text = text
        self.tokens = scan(text) if tokens is None else tokens
        self.index = 0
        self.form = form

    def token(self, ahead: int = 0) -> Token:
        index = self.index + ahead
        if index < len(self.tokens):
            return self.tokens[index]
        end = self.tokens[-1].end if self.tokens else len(self.text)
        return Token(Kind.END, "", end, end)

    @property
    def at_end(self) -> bool:
        return self.index >= len(self.tokens)

    def next(self) -> Token:
        token = self.token()
        self.index += 1
        return token

    def sees(self, *words: str) -> bool:
        """Whether the next tokens are these keywords or symbols, in this order; none is taken."""
        return all(_is(self.token(ahead), word) for ahead, word in enumerate(words))

    def sees_any(self, *words: str) -> bool:
        return any(_is(self.token(), word) for word in words)

    def accept(self, *words: str) -> bool:
        """Take these keywords or symbols if all of them come next."""
        if not self.sees(*words):
            return False
        self.index += len(words)
        return True

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.accept(word):
                raise self.fault(word)

    def name(self, what: str = "a table name") -> tuple[str, ...]:
        """One to three parts joined by dots."""
        start = self.token()
        parts = [self._part(what)]
        while self.accept("."):
            parts.append(self._part("a name after the dot"))
        return self._checked(tuple(parts), start)

    def identifier(self, what: str) -> str:
        """A single part: a column, a cluster."""
        start = self.token()
        return self._checked((self._part(what),), start)[0]

    def identifiers(self, what: str) -> tuple[str, ...]:
        """(a, b, …)"""
        self.expect("(")
        found = [self.identifier(what)]
        while self.accept(","):
            found.append(self.identifier(what))
        if not self.accept(")"):
            raise self.fault("',' or ')'")
        return tuple(found)

    def string(self, what: str) -> str:
        if self.token().kind is not Kind.STRING:
            raise self.fault(what)
        return self.next().value

    def integer(self, what: str) -> int:
        token = self.token()
        if not (token.kind is Kind.NUMBER and token.text.isdigit()):
            raise self.fault(what)
        return self.digits(self.next())

    def digits(self, token: Token) -> int:
        """The number in a token that is known to be digits only; bounded, because its user's counters are."""
        if len(token.value) > _MAX_DIGITS:
            raise UserError(
                f"The number has more than {_MAX_DIGITS} digits.",
                hint="Write a smaller one.",
                position=self.position(token),
            )
        return int(token.value)

    def properties(self) -> dict[str, str]:
        """('k' = 'v', …); keys may also be dotted names, values numbers or TRUE and FALSE."""
        self.expect("(")
        found: dict[str, str] = {}
        while True:
            start = self.token()
            key = self.property_key()
            if key in found:
                raise SyntaxFault(
                    f"The property '{key}' is given twice.", hint=self.hint, position=self.position(start)
                )
            self.expect("=")
            found[key] = self._property_value()
            if self.accept(")"):
                return found
            if not self.accept(","):
                raise self.fault("',' or ')'")

    def property_key(self) -> str:
        if self.token().kind is Kind.STRING:
            return self.next().value
        parts = [self._part("a property name in quotes")]
        while self.accept("."):
            parts.append(self._part("a name after the dot"))
        return ".".join(parts)

    def _property_value(self) -> str:
        sign = "-" if self.accept("-") else ""
        if self.token().kind is Kind.NUMBER or (not sign and self.token().kind is Kind.STRING):
            return sign + self.next().value
        if not sign and self.sees_any("TRUE", "FALSE"):
            return self.next().text.lower()
        raise self.fault("a property value in quotes")

    def skip_parentheses(self) -> None:
        """From an opening parenthesis past the one that closes it."""
        opening = self.token()
        self.expect("(")
        depth = 1
        while depth:
            if self.at_end:
                raise SyntaxFault(
                    "Syntax error: this parenthesis is never closed.", hint=self.hint, position=self.position(opening)
                )
            text = self.next().text
            depth += (text == "(") - (text == ")")

    def text_until(self, what: str, *stops: str) -> str:
        """The text up to one of these keywords outside parentheses, or to the end; `what` names it if it is empty."""
        start = self.token()
        while not self.at_end and not self.sees_any(*stops):
            if self.sees("("):
                self.skip_parentheses()
            elif self.sees(")"):
                raise self.fault(what if self.token() is start else "the end of the statement")
            else:
                self.index += 1
        if self.token().start == start.start:
            raise self.fault(what)
        return self.text[start.start : self.tokens[self.index - 1].end]

    def end(self) -> None:
        if not self.at_end:
            raise self.fault("the end of the statement")

    def position(self, token: Token | None = None) -> Position:
        return position_at(self.text, (token or self.token()).start)

    @property
    def hint(self) -> str | None:
        return f"Write: {self.form}" if self.form else None

    def fault(self, expected: str) -> SyntaxFault:
        """The error to raise when something else comes next."""
        found = self.token()
        shown = "the end of the statement" if found.kind is Kind.END else f"'{_short(found.text)}'"
        return SyntaxFault(
            f"Syntax error: expected {expected}, found {shown}.", hint=self.hint, position=self.position(found)
        )

    def _part(self, what: str) -> str:
        token = self.token()
        if not token.is_name:
            fault = self.fault(what)
            if token.text.startswith('"'):
                # What stands in it is not repeated: it may be a password.
                fault.hint = " ".join(filter(None, ('Names stand in back-quotes: `…`, not "…".', fault.hint)))
            raise fault
        return self.next().value

    def _checked(self, parts: tuple[str, ...], start: Token) -> tuple[str, ...]:
        try:
            return check_parts(parts)
        except UserError as fault:
            raise UserError(fault.message, hint=fault.hint, position=self.position(start)) from None


def _is(token: Token, word: str) -> bool:
    return token.upper == word or (token.kind is Kind.SYMBOL and token.text == word)


def _short(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
