"""`dodona up`: run the gateway until it is stopped."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter, validators

from dodona.app.bootstrap import Runtime, open_runtime
from dodona.app.config.config import Config, load_config
from dodona.app.config.settings import GatewaySection
from dodona.app.config.validation import unused_sections
from dodona.app.extensions.loading import ExtensionLoader
from dodona.app.models.credentials import Credentials
from dodona.app.models.factory import price_list
from dodona.app.projects.code import code_folders
from dodona.app.telemetry.logging import configure_logging
from dodona.cli.client.gateway_file import Announcement
from dodona.cli.commands.operations.status import agent_rows, model_facts
from dodona.cli.options import ConfigFile
from dodona.cli.store_access import open_store
from dodona.cli.terminal.output import REDACTOR, format_columns, print_note, print_text
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.errors import ConfigError
from dodona.core.version import __version__
from dodona.gateway.app import make_app
from dodona.gateway.security.client_address import is_loopback
from dodona.gateway.security.listener import raise_open_file_limit
from dodona.gateway.server import open_listener, parse_listen_host, serve, tuned_gc
from dodona.gateway.settings import GatewaySettings
from dodona.tools.vault.notes.files import walk_notes

SHUTDOWN_TIMEOUT: Final = 10.0  # seconds for active runs to finish

_TRY_LINE = re.compile(r"^try:[ \t]*(\S.*)$", re.MULTILINE)


def up(
    *,
    host: Annotated[
        str | None, Parameter(help="Address to listen on. Defaults to gateway.host.")
    ] = None,
    port: Annotated[
        int | None,
        Parameter(
            help="Port, or 0 for any free port. Defaults to gateway.port.",
            validator=validators.Number(gte=0, lte=65535),
        ),
    ] = None,
    load: Annotated[
        tuple[Path, ...],
        Parameter(
            consume_multiple=True,
            negative="",
            show_default=False,
            help="Python files with extensions, in addition to those of extend.python.",
        ),
    ] = (),
    config: ConfigFile = None,
) -> None:
    """Run the gateway until Ctrl-C. Interrupted runs are resumed."""
    read_config = partial(load_config, os.environ, config, has_extensions=bool(load))
    loaded = read_config()
    configure_logging(loaded.settings.log, REDACTOR)
    for line in unused_sections(loaded.settings, loaded.origins):
        print_note(line)
    gateway = loaded.settings.gateway
    raise_open_file_limit()
    address = (host or gateway.host, gateway.port if port is None else port)
    loader = ExtensionLoader(files=load)
    asyncio.run(_run_gateway(loaded, address, loader=loader, reload_config=read_config))


async def _run_gateway(
    config: Config,
    address: tuple[str, int],
    *,
    loader: ExtensionLoader,
    reload_config: Callable[[], Config],
) -> None:
    credentials = Credentials(config, os.environ, REDACTOR)
    announcements: list[Announcement] = []
    host, port = address
    is_local = is_loopback(parse_listen_host(host))
    async with AsyncExitStack() as stack:
        if not is_local:
            await _check_tokens(config, host)
        # Before runs are resumed: if the port is in use, another gateway resumes them.
        listener = stack.enter_context(open_listener(host, port, allow_remote=not is_local))
        runtime = await stack.enter_async_context(
            open_runtime(
                config,
                credentials,
                REDACTOR,
                serve=True,
                loader=loader,
                reload_config=reload_config,
            )
        )

        def on_started(url: str) -> None:
            vault, code = str(runtime.vault or ""), tuple(map(str, code_folders(config)))
            announcements.append(
                Announcement(url, os.getpid(), runtime.store_location, vault=vault, code=code)
            )
            announcements[0].write(config.home)
            print_text(REDACTOR.scrub(_format_greeting(url, config, runtime)))

        async def finish_runs() -> None:
            print_note("\nStopping after active runs finish. Press Ctrl-C again to stop now.")
            for each in announcements:
                each.remove(config.home)
            _print_stopped(await runtime.shutdown(SHUTDOWN_TIMEOUT))

        try:
            settings = _gateway_settings(config.settings.gateway, needs_token=not is_local)
            app = make_app(runtime.gateway_state(settings, REDACTOR))
            with tuned_gc():
                await serve(app, listener, on_started=on_started, finish_runs=finish_runs)
        finally:
            for each in announcements:
                each.remove(config.home)


async def _check_tokens(config: Config, host: str) -> None:
    """Require a token for a public address: without one, every request would be denied."""
    async with open_store(config, REDACTOR) as store:
        if not await store.api_tokens.has_active():
            raise ConfigError(
                f"listening on {host} is open to the network and needs a token.",
                hint="Create one first: dodona token create --user NAME --scope chat",
            )


def _gateway_settings(gateway: GatewaySection, *, needs_token: bool) -> GatewaySettings:
    return GatewaySettings(
        hosts=gateway.hosts,
        proxies=gateway.proxies,
        needs_token=needs_token,
        limits=gateway,
    )


def _print_stopped(count: int) -> None:
    if count:
        runs = "1 run" if count == 1 else f"{count} runs"
        print_note(f"The next `dodona up` resumes {runs}.")
    print_note("Stopped.")


def _format_greeting(url: str, config: Config, runtime: Runtime) -> str:
    facts = model_facts(runtime.model_choice, price_list(config.settings))
    code = config.settings.code.paths
    rows = [
        ("dodona", __version__),
        ("address", url),
        *agent_rows("agent", {**facts, "tried": ()}),
        ("vault", str(runtime.vault or "-")),
        *(("code" if number == 0 else "", path) for number, path in enumerate(code)),
        ("store", runtime.store_location),
    ]
    return "\n".join([format_columns(rows), "", *_format_hints(runtime.vault)])


def _format_hints(vault: Path | None) -> Iterator[str]:
    if vault is not None and next(iter(walk_notes(vault)), None) is None:
        yield f"No notes yet. Put Markdown files into {vault}"
    yield f'Try: dodona ask "{_suggested_question(vault)}"'
    yield "Press Ctrl-C to stop."


def _suggested_question(vault: Path | None) -> str:
    """Return the question in `try:` of the front matter of the vault's index.md, or "…"."""
    try:
        text = (vault / "index.md").read_text(encoding="utf-8") if vault else ""
    except (OSError, ValueError):
        text = ""
    front = text.partition("\n---")[0] if text.startswith("---\n") else ""
    match = _TRY_LINE.search(front)
    return strip_control_chars(match[1].strip()).replace('"', "'")[:200] if match else "…"
