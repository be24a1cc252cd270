"""Is somebody there, and can they work?"""

from __future__ import annotations

from starlette.responses import Response

import dodona
from dodona.gateway.answers import answer
from dodona.gateway.errors import Leaving
from dodona.gateway.operation import Operation, Says
from dodona.gateway.visit import Visit


async def alive(_visit: Visit) -> Response:
    return answer({"status": "ok", "name": "dodona", "version": dodona.__version__})


async def ready(visit: Visit) -> Response:
    """Not while we are leaving: whoever balances load sends nothing here any more."""
    if visit.gate.closing.is_leaving:
        raise Leaving("Dodona is stopping.")
    return answer({"status": "ready", **await visit.gate.ready()})


OPERATIONS = (
    Operation(
        method="GET",
        path="/healthz",
        name="isAlive",
        about="Answers as long as the process does.",
        handle=alive,
        answers={200: Says("It does.", "Health")},
        errors=(400,),
        is_open=True,
    ),
    Operation(
        method="GET",
        path="/readyz",
        name="isReady",
        about="Whether questions can be answered.",
        handle=ready,
        answers={200: Says("They can.", "Readiness")},
        errors=(400, 503),
        scope="",
    ),
)
