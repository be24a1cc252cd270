"""`dodona up`: the gateway, until somebody stops it."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter, validators

from dodona import __version__
from dodona.app.bootstrap import Runtime, open_runtime
from dodona.app.config.config import Config, load
from dodona.app.config.settings import Gateway
from dodona.app.config.validation.extensions import unused_sections
from dodona.app.models.credentials import Credentials
from dodona.app.models.factory import price_list
from dodona.app.projects.code import code_folders
from dodona.app.telemetry import logging as logs
from dodona.cli.client.gateway_file import Announcement
from dodona.cli.commands.operations.status import agent_rows, model_facts
from dodona.cli.commands.project.config import ConfigFile, Hidden
from dodona.cli.store_access import opened_store
from dodona.cli.terminal.output import columns, note, say
from dodona.cli.terminal.screen import plain
from dodona.core.errors import ConfigError
from dodona.gateway.app import make_app
from dodona.gateway.security.client_address import is_loopback
from dodona.gateway.server import address_to_listen, listening, serve, tuned_gc
from dodona.gateway.settings import GatewaySettings, Limits
from dodona.gateway.state import Beside
from dodona.net.redactor import Redactor
from dodona.tools.vault.notes.files import walk_notes

PATIENCE: Final = 10.0  # seconds in which runs may finish when we are stopped

_FIRST = re.compile(r"^try:[ \t]*(\S.*)$", re.MULTILINE)


def up(
    *,
    host: Annotated[str | None, Parameter(help="Where to listen; [gateway] host.")] = None,
    port: Annotated[
        int | None,
        Parameter(
            help="The port, 0 for any that is free; [gateway] port.",
            validator=validators.Number(gte=0, lte=65535),
        ),
    ] = None,
    config: ConfigFile = None,
    redactor: Hidden,
) -> None:
    """Start Dodona, and keep it running until Ctrl-C. Runs that were cut short are resumed."""
    loaded = load(os.environ, config)
    logs.configure_logging(loaded.settings.log, redactor)
    for line in unused_sections(loaded.settings, loaded.places):
        note(line)
    gateway = loaded.settings.gateway
    here = (host or gateway.host, gateway.port if port is None else port)
    asyncio.run(_up(loaded, redactor, here, reread=partial(load, os.environ, config)))


async def _up(
    config: Config, redactor: Redactor, here: tuple[str, int], *, reread: Callable[[], Config]
) -> None:
    credentials = Credentials(config, os.environ, redactor)
    announced: list[Announcement] = []
    host, port = here
    is_here = is_loopback(address_to_listen(host))
    async with AsyncExitStack() as stack:
        if not is_here:
            await _check_tokens(config, redactor, host)
        # Before runs are taken up: if the port is in use, somebody else takes them up.
        listener = stack.enter_context(listening(host, port, to_all=not is_here))
        runtime = await stack.enter_async_context(
            open_runtime(config, credentials, redactor, serve=True, reread=reread)
        )

        def tell(url: str) -> None:
            vault, code = str(runtime.vault or ""), tuple(map(str, code_folders(config)))
            announced.append(Announcement(url, os.getpid(), runtime.store, vault=vault, code=code))
            announced[0].write(config.home)
            say(redactor.scrub(_greeting(url, config, runtime)))

        async def leave() -> None:
            note("\nStopping when what runs has ended. Ctrl-C again stops at once.")
            for each in announced:
                each.remove(config.home)
            _tell_left(await runtime.shutdown(PATIENCE))

        try:
            app = make_app(
                runtime.agency,
                rules=_rules(config.settings.gateway, needs_token=not is_here),
                ready=runtime.standing.ready,
                beside=Beside(
                    tokens=runtime.tokens,
                    audit=runtime.audit,
                    measures=runtime.measures,
                    status=runtime.standing.now,
                    routing=runtime.routing,
                ),
                redactor=redactor,
            )
            with tuned_gc():
                await serve(app, listener, on_started=tell, leave=leave)
        finally:
            for each in announced:
                each.remove(config.home)


async def _check_tokens(config: Config, redactor: Redactor, host: str) -> None:
    """Where others can come in, somebody must be known: with no token, nobody could."""
    async with opened_store(config, redactor) as store:
        if not await store.tokens.any_active():
            raise ConfigError(
                f"on {host} others on the network could come in, and there is no token yet.",
                hint="Make one first: dodona token create --user NAME --scope chat",
            )


def _rules(gateway: Gateway, *, needs_token: bool) -> GatewaySettings:
    limits = {each.name: getattr(gateway, each.name) for each in fields(Limits)}
    return GatewaySettings(
        hosts=gateway.hosts,
        proxies=gateway.proxies,
        needs_token=needs_token,
        limits=Limits(**limits),
    )


def _tell_left(count: int) -> None:
    if count:
        runs = "run goes" if count == 1 else "runs go"
        note(f"{count} {runs} on with the next `dodona up`.")
    note("Stopped.")


def _greeting(url: str, config: Config, runtime: Runtime) -> str:
    facts = model_facts(runtime.choice, price_list(config.settings))
    code = config.settings.code.paths
    rows = [
        ("dodona", __version__),
        ("address", url),
        *agent_rows("agent", {**facts, "tried": ()}),
        ("vault", str(runtime.vault or "-")),
        *(("code" if place == 0 else "", path) for place, path in enumerate(code)),
        ("store", runtime.store),
    ]
    return "\n".join([columns(rows), "", *_advice(runtime.vault)])


def _advice(vault: Path | None) -> Iterator[str]:
    if vault is not None and next(iter(walk_notes(vault)), None) is None:
        yield f"There are no notes yet. Put Markdown files into {vault}"
    yield f'Try: dodona ask "{_first_question(vault)}"'
    yield "Ctrl-C stops."


def _first_question(vault: Path | None) -> str:
    """What the vault proposes: `try:` in the front matter of its index.md."""
    try:
        text = (vault / "index.md").read_text(encoding="utf-8") if vault else ""
    except (OSError, ValueError):
        text = ""
    front = text.partition("\n---")[0] if text.startswith("---\n") else ""
    found = _FIRST.search(front)
    return plain(found[1].strip()).replace('"', "'")[:200] if found else "…"
