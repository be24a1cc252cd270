"""What one connection may ask of us."""

from __future__ import annotations

from typing import Final

REQUESTS: Final = 32  # that are being worked on at once
FOLLOWED: Final = 1_000  # runs whose events or answers it waits for at once
TOKEN_SECONDS: Final = 10.0  # in which a token must come, where one is required
PING_EVERY: Final = 30.0  # seconds; one that does not answer for as long again is gone
LONGEST_ID: Final = 100  # characters of a request's id
# A frame larger than `GatewaySettings.largest_body` gets an error response. One larger than
# this closes the connection, because answering it would mean holding it in memory.
LARGEST_MESSAGE: Final = 8 << 20  # bytes

UNKNOWN_CALLER: Final = 4001  # the code that a connection without a good token is closed with
