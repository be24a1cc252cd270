"""Errors that travelled as JSON are what they were."""

from __future__ import annotations

import pytest

from dodona.core import errors
from dodona.core.errors import (
    BadRequest,
    BudgetExceeded,
    Cancelled,
    DodonaError,
    NotFound,
    ProviderError,
    ProviderErrorKind,
    StoreError,
    TreeError,
    from_json,
)


@pytest.mark.parametrize(
    "error",
    [
        BadRequest("no.", hint="Yes."),
        BudgetExceeded("too much."),
        Cancelled("cancelled."),
        NotFound("gone."),
        StoreError("broken."),
        TreeError("bent."),
        ProviderError("down.", kind=ProviderErrorKind.NO_FIRST_TOKEN, provider="x", hint="Wait."),
        BadRequest("2 problems.", problems=[BadRequest("one."), BadRequest("two.", hint="Hm.")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_there_and_back(error: DodonaError) -> None:
    """The same class, so the same exit code; the same words."""
    back = from_json(errors.as_json(error)["error"])
    assert type(back) is type(error)
    assert errors.as_json(back) == errors.as_json(error)
    assert errors.as_text(back) == errors.as_text(error)


def test_an_unknown_code_is_an_error_still() -> None:
    """Of a newer gateway."""
    assert type(from_json({"code": "new", "message": "new."})) is DodonaError
    assert str(from_json({})) == ""
