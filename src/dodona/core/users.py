"""Users. On loopback there is one, and nobody asks who it is."""

from __future__ import annotations

from typing import Final

LOCAL_USER: Final = "local"
