"""A gateway in a process of its own, for tests of its end: run as a script, it tells its address.

One run goes on until the file that is named on the command line appears.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from dodona.gateway.app import make_app
from dodona.gateway.server import open_listener, serve
from dodona.gateway.settings import GatewaySettings
from dodona.gateway.state import GatewayState
from tests.gateway.plain_agency import PlainAgency
from tests.gateway.talking import ready


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def main(sign: Path) -> None:
    agency = PlainAgency()

    async def leave() -> None:
        tell("leaving")
        while not await asyncio.to_thread(sign.exists):  # noqa: ASYNC110 - it is a file
            await asyncio.sleep(0.01)
        for run in agency.oracle.runs.values():
            if run.request.question == "finish":
                await run.say("finished")
                await run.finish()
        tell("left")

    app = make_app(GatewayState(api=agency, settings=GatewaySettings(), check_readiness=ready))
    with open_listener("127.0.0.1", 0) as listener:
        await serve(app, listener, on_started=lambda url: tell("at", url), finish_runs=leave)
    tell("over")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
