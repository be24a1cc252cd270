"""What the sections of a file are made of, and how one of them says that it is wrong."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field, Strict
from pydantic_core import PydanticCustomError

SAID = "said"

# TOML knows arrays and no tuples.
Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Strict(strict=False)]


class Section(BaseModel):
    """Nothing is converted, nothing unknown is taken, nothing changes."""

    # The key that a plain number in the place of the whole section is for, if it may stand there.
    number_is: ClassVar[str] = ""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


def wrong(message: str, hint: str = "", *, line: int = 0) -> PydanticCustomError:
    """A mistake in words of ours, for a validator to raise: "must be a provider", and a hint.

    With `line`, the value is a text that is wrong there, counted from 1.
    """
    # The words go in as values: braces in them are no placeholders.
    return PydanticCustomError(SAID, "{message}", {"message": message, "hint": hint, "line": line})
