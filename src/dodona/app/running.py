"""Puts Dodona together: every adapter in its port, opened in order and closed in reverse."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from time import time
from typing import Final

from dodona import store as ledger
from dodona.agent.agency import Agency, make_agency
from dodona.agent.approving import Desk
from dodona.agent.choices import ChoicesOf
from dodona.agent.decision import DEFAULT_DECISIONS
from dodona.agent.means import Conduct, Means
from dodona.agent.subagents import SUBAGENTS
from dodona.app import logs
from dodona.app.building import ceilings, price_list
from dodona.app.choice import Choice
from dodona.app.codes import Codes, code_folders, code_meaning
from dodona.app.config import Config
from dodona.app.credentials import Credentials
from dodona.app.heeding import heeded
from dodona.app.measured_models import MeasuredModels
from dodona.app.measuring import Standing, hear, watch
from dodona.app.reloading import Reloading
from dodona.app.settings import Settings
from dodona.app.staff import Staff
from dodona.app.store_url import store_url
from dodona.app.vaults import Vaults, vault_folder
from dodona.app.web import add_web
from dodona.core.errors import StoreError
from dodona.core.measures import Measures
from dodona.core.routing import Routing
from dodona.core.tokens import Tokens
from dodona.documents import KeyPath
from dodona.metering import Meter
from dodona.models.counter import TokenCounter
from dodona.net.http import Http
from dodona.net.redactor import Redactor
from dodona.notify.bus import Bus
from dodona.store import Store, locate
from dodona.store.audit import AuditLog
from dodona.tools import notify_self
from dodona.tools.calling import call_tool
from dodona.tools.code import add_code_tools
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads import add_thread_tools
from dodona.tools.vault import add_vault_tools

TIDY_EVERY: Final = 60.0  # seconds
KEPT_FOR: Final = 30 * 86_400.0  # seconds that steps of ended runs can be replayed

# Where a project keeps prompts of its own: hidden in its vault, so that no tool can write there.
PROMPTS: Final = Path(".dodona", "prompts")

_log = logging.getLogger(__name__)

AddTools = Callable[[ToolRegistry], None]


@dataclass(frozen=True, slots=True)
class Runtime:
    """Dodona, running in this process."""

    agency: Agency
    choice: Choice
    routing: Routing
    vault: Path
    store: str
    measures: Measures
    standing: Standing
    tokens: Tokens
    audit: AuditLog

    async def leave(self, patience: float) -> int:
        """Take no more questions and let runs end; how many were left to be resumed."""
        return await self.agency.engine.leave(patience)


@asynccontextmanager
async def running(
    config: Config,
    credentials: Credentials,
    redactor: Redactor,
    *,
    serve: bool,
    tools: AddTools | None = None,
    decisions: str = DEFAULT_DECISIONS,
    reread: Callable[[], Config] | None = None,
) -> AsyncGenerator[Runtime]:
    """Dodona on this config. `serve`: it also takes up what a process that died has left.

    Whoever embeds it may add `tools`, and name a decision tree that they registered. With
    `reread` the config is followed: it loads it anew.
    """
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(Http())
        url = await asyncio.to_thread(store_url, config, credentials)
        measures = Measures()
        store = await _store(stack, config, url, redactor, measures)
        bus = Bus()
        stack.callback(bus.close)
        counter = TokenCounter()
        staff = Staff(
            stack, http=http, redactor=redactor, counter=counter, emit=bus.emit, follow=serve
        )
        await staff.take(config)
        choice = staff.choices[""]
        folder = await asyncio.to_thread(vault_folder, config)
        vaults = await stack.enter_async_context(
            Vaults(store.projects, default=folder, home=config.home, follow=serve)
        )
        codes = await _codes(stack, store, config, follow=serve)
        registry = ToolRegistry()
        add_vault_tools(registry, vaults)
        add_code_tools(registry, codes)
        await add_web(registry, config, credentials, stack)
        _add_kept(registry, store)
        if tools is not None:
            tools(registry)
        subscribers, rules = await heeded(stack, config, follow=serve)
        meter = _meter(config)
        means = Means(
            storage=store,
            models=MeasuredModels(staff.models, measures, price_list(config.settings)),
            meter=meter,
            toolbox=registry,
            call_tool=partial(call_tool, registry),
            counter=counter,
            emit=bus.emit,
            hide=redactor.hide_all,
            notes=vaults,
            code=codes,
            subscribers=subscribers,
            rules=rules,
            desk=Desk(store.approvals),
            choices=ChoicesOf(store.pack_state),
            agents=staff.now,
            conduct=_conduct(config.settings),
            decisions=decisions,
        )
        make = partial(
            make_agency,
            means,
            events=bus,
            tree=staff.trees,
            prompt_folder=lambda brief: vaults.place(brief.project) / PROMPTS,
            serves=serve,
        )
        agency = await asyncio.to_thread(make)  # it reads files
        upkeep = Upkeep(config)
        await _looked_after(stack, store, upkeep, agency, serve=serve)
        if reread is not None:
            live = _live(staff, means, meter, upkeep, redactor)
            followed = await asyncio.to_thread(Reloading, config, reread, live)
            await stack.enter_async_context(followed.following())
        hear(measures, bus, is_tool=partial(_is_tool, registry))
        watch(measures, store=store, bus=bus, engine=agency.engine)
        standing = Standing(store, agency.engine, measures, choice=lambda: staff.choices[""])
        yield Runtime(
            *(agency, choice, staff.routing, folder, str(locate(url)), measures, standing),
            *(store.tokens, store.audit),
        )


def _live(
    staff: Staff, means: Means, meter: Meter, upkeep: Upkeep, redactor: Redactor
) -> dict[KeyPath, Callable[[Config], Awaitable[None]]]:
    """What changes while Dodona runs, by the first names of its keys."""

    async def conduct(config: Config) -> None:
        fresh = _conduct(config.settings)
        for field in fields(fresh):
            setattr(means.conduct, field.name, getattr(fresh, field.name))
        upkeep.take(config)

    async def log(config: Config) -> None:
        logs.start(config.settings.log, redactor)

    async def terms(config: Config) -> None:
        meter.take(ceilings(config.settings), price_list(config.settings))

    return {
        ("agent",): staff.take,
        ("agents",): staff.take,
        ("budgets",): terms,
        ("prices",): terms,
        ("bindings",): staff.take,
        ("log",): log,
        ("librarian", "summarise"): conduct,
        ("context",): conduct,
        ("web", "hold_effects"): conduct,
        ("approvals",): conduct,
        ("audit",): conduct,
    }


def _conduct(settings: Settings) -> Conduct:
    return Conduct(
        summarises=settings.librarian.summarise,
        compresses=settings.context.compress,
        holds_effects=settings.web.hold_effects,
        approval_seconds=settings.approvals.timeout_seconds,
        token_budget=settings.context.token_budget,
    )


async def _store(
    stack: AsyncExitStack, config: Config, url: str, redactor: Redactor, measures: Measures
) -> Store:
    opened = await Store.open(
        url,
        hide=redactor.hide,
        durability=config.settings.store.durability,
        on_write=measures.write_seconds.observe,
    )
    return await stack.enter_async_context(opened)


def _add_kept(registry: ToolRegistry, store: Store) -> None:
    """The tools for what the store keeps."""
    add_thread_tools(registry, store.threads)
    notify_self.add(registry, store.notices)


def _is_tool(registry: ToolRegistry, name: str) -> bool:
    handed_on = (subagent.delegation.name for subagent in SUBAGENTS.values())
    return registry.find(name) is not None or name in handed_on


async def _codes(stack: AsyncExitStack, store: Store, config: Config, *, follow: bool) -> Codes:
    folders = await asyncio.to_thread(code_folders, config)
    codes = Codes(
        store.projects,
        default=folders,
        home=config.home,
        max_file_kb=config.settings.code.max_file_kb,
        meaning=await asyncio.to_thread(code_meaning, config),
        follow=follow,
    )
    return await stack.enter_async_context(codes)


def _meter(config: Config) -> Meter:
    settings = config.settings
    return Meter(ceilings(settings), prices=price_list(settings), ledger=ledger)


async def _looked_after(
    stack: AsyncExitStack, store: Store, upkeep: Upkeep, agency: Agency, *, serve: bool
) -> None:
    """Tidy up now, and while serving now and then; leave runs to others in the end."""
    await store.contexts.close_idle(time() - upkeep.idle)
    stack.push_async_callback(agency.engine.leave, 0.0)
    if serve:
        agency.engine.start()
        tidying = asyncio.create_task(_tidy(store, upkeep))
        stack.push_async_callback(_cancelled, tidying)


class Upkeep:
    """How long things are kept, in seconds, as the config says now."""

    def __init__(self, config: Config) -> None:
        self.idle = self.audit = 0.0
        self.take(config)

    def take(self, config: Config) -> None:
        self.idle = config.settings.context.idle_minutes * 60.0
        self.audit = config.settings.audit.kept_days * 86_400.0


async def _tidy(store: Store, upkeep: Upkeep) -> None:
    while True:
        await asyncio.sleep(TIDY_EVERY)
        try:
            await store.contexts.close_idle(time() - upkeep.idle)
            await store.journals.expire(time() - KEPT_FOR)
            await store.budgets.settle_dead()
            await store.budgets.expire(time() - KEPT_FOR)
            await store.audit.expire(time() - upkeep.audit)
        except StoreError as error:
            _log.warning("the store cannot be tidied: %s", error)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
