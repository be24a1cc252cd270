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

from dodona.core.domain.api_tokens import (
    SCOPES,
    TOKEN_PREFIX,
    UNLIMITED,
    ApiToken,
    BudgetPeriod,
    TokenLimits,
)
from dodona.core.domain.audit import AuditEntry
from dodona.core.domain.budgets import MAX_CEILING_TOKENS, MAX_CEILING_USD, NANOS_PER_USD
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
    *(tokens.c.budget_tokens, tokens.c.budget_nanos, tokens.c.budget_period),
    *(tokens.c.agents_json, tokens.c.models_json),
)
_INSERT_TOKEN = insert_returning_id(
    tokens,
    *("user_id", "label", "hash", "scopes_json", "created_at", "expires_at"),
    *("budget_tokens", "budget_nanos", "budget_period", "agents_json", "models_json"),
)
_SELECT_TOKEN_BY_HASH = statement(
    select(tokens.c.hash, *_COLUMNS).where(tokens.c.hash == bindparam("its_hash"))
)
_SELECT_TOKEN = statement(select(*_COLUMNS).where(tokens.c.id == bindparam("its_id")))
_BATCH_SIZE: Final = 100
_SELECT_BATCH = statement(
    select(*_COLUMNS).where(
        tokens.c.id.in_([bindparam(f"id_{n}", type_=tokens.c.id.type) for n in range(_BATCH_SIZE)])
    )
)
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
        limits: TokenLimits = UNLIMITED,
    ) -> tuple[ApiToken, str]:
        """Create a token; return it and its text, which cannot be retrieved again."""
        _check_new_token(user_id, scopes, label)
        _check_limits(limits)
        text = TOKEN_PREFIX + secrets.token_urlsafe(32)
        values = {
            "user_id": user_id,
            "label": label,
            "hash": digest_of(text),
            "scopes_json": to_json(sorted(scopes)),
            "created_at": time(),
            "expires_at": expires_at,
            "budget_tokens": limits.budget_tokens,
            "budget_nanos": limits.budget_nanos,
            "budget_period": limits.period.value,
            "agents_json": _names_to_json(limits.agents),
            "models_json": _names_to_json(limits.models),
        }
        scope_list = ", ".join(sorted(scopes))

        def create(tx: Transaction) -> ApiToken:
            token = find_token(tx, tx.insert(_INSERT_TOKEN, **values))
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
            token = find_token(tx, token_id)
            if not tx.execute(_REVOKE, its_id=token_id, now=time()):
                return token
            message = f"token {token_id} of {token.user_id} was revoked."
            add_entry(tx, AuditEntry.for_admin(message, user_id=by))
            return find_token(tx, token_id)

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

    async def find_all(self, ids: Sequence[int]) -> dict[int, ApiToken]:
        """Return the tokens with these ids, active or not. Unknown ids are left out."""

        def find_all(tx: Transaction) -> dict[int, ApiToken]:
            found: dict[int, ApiToken] = {}
            for start in range(0, len(ids), _BATCH_SIZE):
                batch = ids[start : start + _BATCH_SIZE]
                padded = [*batch, *[batch[0]] * (_BATCH_SIZE - len(batch))]
                values = {f"id_{n}": each for n, each in enumerate(padded)}
                rows = tx.fetch_all(_SELECT_BATCH, **values)
                found |= {token.id: token for token in map(_token_from_row, rows)}
            return found

        return await self._database.read(find_all)

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


def _check_limits(limits: TokenLimits) -> None:
    """Raise BadRequest for limits that no request could meet, or that are too large to store."""
    maximum = {"tokens": MAX_CEILING_TOKENS, "US dollars": MAX_CEILING_USD * NANOS_PER_USD}
    for unit, amount in zip(maximum, (limits.budget_tokens, limits.budget_nanos), strict=True):
        if amount is not None and not 0 <= amount <= maximum[unit]:
            raise BadRequest(
                f"the budget of a token in {unit} is negative or too large.",
                hint="0 allows no model calls. Without a budget, the token is unlimited.",
            )
    for kind, names in (("agent", limits.agents), ("model", limits.models)):
        if names is not None and not all(name.strip() for name in names or ("",)):
            raise BadRequest(f"the name of an allowed {kind} is empty.")
        for name in names or ():
            check_length(f"the name of an allowed {kind}", name, max_chars=MAX_LABEL_CHARS)


def find_token(tx: Transaction, token_id: int) -> ApiToken:
    """Return a token, active or not."""
    row = tx.fetch_one(_SELECT_TOKEN, its_id=token_id)
    if row is None:
        raise NotFound(f"there is no token {token_id}.", hint="List them: dodona token list")
    return _token_from_row(row)


def _token_from_row(row: Row) -> ApiToken:
    values: list[Any] = list(row[:8])
    values[3] = frozenset(from_json(row[3]))
    budget_tokens, budget_nanos, period, agents, models = row[8:]
    limits = TokenLimits(
        budget_tokens=budget_tokens,
        budget_nanos=budget_nanos,
        period=BudgetPeriod(period),
        agents=_names_from_json(agents),
        models=_names_from_json(models),
    )
    return ApiToken(*values, limits=limits)


def _names_to_json(names: frozenset[str] | None) -> str | None:
    return None if names is None else to_json(sorted(names))


def _names_from_json(encoded: str | None) -> frozenset[str] | None:
    return None if encoded is None else frozenset(from_json(encoded))
