"""API tokens: the text is shown once and stored as SHA-256. Revoked tokens stay on record."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Sequence
from hashlib import sha256
from hmac import compare_digest
from time import time
from typing import Any, Final

from sqlalchemy import bindparam, or_, select, update

from dodona.core.domain.api_tokens import SCOPES, TOKEN_PREFIX, ApiToken
from dodona.core.domain.audit import AuditEntry
from dodona.core.errors import BadRequest, NotFound, did_you_mean
from dodona.store.accounts.audit import add_entry
from dodona.store.db.database import Database, Row, Transaction
from dodona.store.db.statements import insert_returning_id, statement
from dodona.store.db.text import check_length, from_json, to_json
from dodona.store.schema import tokens

MAX_LABEL_CHARS: Final = 200

# User names become folder names, also on file systems that ignore case.
_USER_PATTERN = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,63}")
_COLUMNS = (
    *(tokens.c.id, tokens.c.user_id, tokens.c.label, tokens.c.scopes_json, tokens.c.created_at),
    *(tokens.c.expires_at, tokens.c.last_used_at, tokens.c.revoked_at),
)
_INSERT_TOKEN = insert_returning_id(
    tokens, "user_id", "label", "hash", "scopes_json", "created_at", "expires_at"
)
_SELECT_TOKEN_BY_HASH = statement(
    select(tokens.c.hash, *_COLUMNS).where(tokens.c.hash == bindparam("its_hash"))
)
_SELECT_TOKEN = statement(select(*_COLUMNS).where(tokens.c.id == bindparam("its_id")))
_SELECT_TOKENS = statement(select(*_COLUMNS).order_by(tokens.c.id))
_SELECT_ANY_ACTIVE = statement(
    select(tokens.c.id)
    .where(
        tokens.c.revoked_at.is_(None),
        or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > bindparam("now")),
    )
    .limit(1)
)
_REVOKE = statement(
    update(tokens)
    .where(tokens.c.id == bindparam("its_id"), tokens.c.revoked_at.is_(None))
    .values(revoked_at=bindparam("now"))
)
_UPDATE_LAST_USED = statement(
    update(tokens)
    .where(
        tokens.c.id == bindparam("its_id"),
        or_(tokens.c.last_used_at.is_(None), tokens.c.last_used_at < bindparam("now")),
    )
    .values(last_used_at=bindparam("now"))
)


def digest_of(text: str) -> str:
    """Return the stored hash of a token. With 256 random bits, it cannot be brute-forced."""
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


class ApiTokens:
    """The tokens of all users. Every change is also written to the audit log."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        user_id: str,
        scopes: Collection[str],
        *,
        by: str,
        label: str = "",
        expires_at: float | None = None,
    ) -> tuple[ApiToken, str]:
        """Create a token; return it and its text, which cannot be retrieved again."""
        _check_new_token(user_id, scopes, label)
        text = TOKEN_PREFIX + secrets.token_urlsafe(32)
        values = {
            "user_id": user_id,
            "label": label,
            "hash": digest_of(text),
            "scopes_json": to_json(sorted(scopes)),
            "created_at": time(),
            "expires_at": expires_at,
        }
        scope_list = ", ".join(sorted(scopes))

        def create(tx: Transaction) -> ApiToken:
            token = _find_token(tx, tx.insert(_INSERT_TOKEN, **values))
            message = f"token {token.id} was created for {user_id}: {scope_list}."
            add_entry(tx, AuditEntry.for_admin(message, user_id=by))
            return token

        return await self._database.write(create), text

    async def list(self) -> list[ApiToken]:
        """List all tokens, including revoked and expired ones, oldest first."""
        return [
            _token_from_row(row)
            for row in await self._database.read(lambda tx: tx.fetch_all(_SELECT_TOKENS))
        ]

    async def revoke(self, token_id: int, *, by: str) -> ApiToken:
        """Revoke a token immediately. Revoking it again changes nothing."""

        def revoke(tx: Transaction) -> ApiToken:
            token = _find_token(tx, token_id)
            if not tx.execute(_REVOKE, its_id=token_id, now=time()):
                return token
            message = f"token {token_id} of {token.user_id} was revoked."
            add_entry(tx, AuditEntry.for_admin(message, user_id=by))
            return _find_token(tx, token_id)

        return await self._database.write(revoke)

    async def has_active(self) -> bool:
        """Whether any token is neither revoked nor expired."""
        now = time()
        return (
            await self._database.read(lambda tx: tx.fetch_one(_SELECT_ANY_ACTIVE, now=now))
            is not None
        )

    async def find(self, digest: str) -> ApiToken | None:
        """Return the token whose text has this SHA-256, active or not."""
        row = await self._database.read(
            lambda tx: tx.fetch_one(_SELECT_TOKEN_BY_HASH, its_hash=digest)
        )
        if row is None or not compare_digest(row[0], digest):
            return None
        return _token_from_row(row[1:])

    async def record_use(self, ids: Sequence[int], used_at: float) -> None:
        """Record when tokens were last used; this may be lost in a power failure."""
        rows = [{"its_id": each, "now": used_at} for each in ids]
        await self._database.write(lambda tx: tx.execute_many(_UPDATE_LAST_USED, rows), soft=True)


def _check_new_token(user_id: str, scopes: Collection[str], label: str) -> None:
    if not _USER_PATTERN.fullmatch(user_id):
        raise BadRequest(
            f"{user_id!r:.80} is not a valid user name.",
            hint="Use up to 64 lowercase letters, digits and . _ @ + -, starting with a letter "
            "or digit.",
        )
    for scope in scopes:
        if scope not in SCOPES:
            hint = did_you_mean(scope, SCOPES) or f"Scopes are {', '.join(SCOPES)}."
            raise BadRequest(f"there is no scope {scope!r:.80}.", hint=hint)
    if not scopes:
        raise BadRequest("a token needs a scope.", hint=f"Scopes are {', '.join(SCOPES)}.")
    check_length("the label of a token", label, max_chars=MAX_LABEL_CHARS)


def _find_token(tx: Transaction, token_id: int) -> ApiToken:
    row = tx.fetch_one(_SELECT_TOKEN, its_id=token_id)
    if row is None:
        raise NotFound(f"there is no token {token_id}.", hint="List them: dodona token list")
    return _token_from_row(row)


def _token_from_row(row: Row) -> ApiToken:
    values: list[Any] = list(row)
    values[3] = frozenset(from_json(row[3]))
    return ApiToken(*values)
