"""Puts Dodona together: every adapter in its port, opened in order and closed in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from dodona import store as ledger
from dodona.agent.api import AgentApi, build_agent_api
from dodona.agent.run_context.approvals import ApprovalGate
from dodona.agent.run_context.deps import RunDeps
from dodona.agent.run_context.overrides import OverridesCache
from dodona.agent.run_context.registries import SUBAGENTS
from dodona.agent.turn_control.decision import DEFAULT_DECISIONS
from dodona.app.agents.registry import LiveAgents
from dodona.app.config.config import Config
from dodona.app.config.live import reload_handlers, run_policy
from dodona.app.config.reload import ConfigReloader
from dodona.app.config.store_url import store_url
from dodona.app.maintenance import Maintenance
from dodona.app.models.credentials import Credentials
from dodona.app.models.factory import ceilings, price_list
from dodona.app.models.instrumented import InstrumentedModels
from dodona.app.models.selection import ModelChoice
from dodona.app.notifications import open_notifications
from dodona.app.projects.code import CodeIndexes, code_folders, code_meaning
from dodona.app.projects.vaults import VaultIndexes, vault_folder
from dodona.app.projects.web import add_web
from dodona.app.telemetry.collect import ServerStatus, add_collectors, subscribe_metrics
from dodona.core.domain.api_tokens import Tokens
from dodona.core.domain.audit import AuditEntry
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.domain.routing import LiveRouter
from dodona.metering import Meter
from dodona.models.token_counter import OfflineTokenCounter
from dodona.net.http import Http
from dodona.net.redactor import Redactor
from dodona.notify.bus import Bus
from dodona.store import Store, locate
from dodona.store.accounts.audit import AuditLog
from dodona.telemetry.metrics import Metrics
from dodona.tools import notify_self
from dodona.tools.call import call_tool
from dodona.tools.code import add_code_tools
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads import add_thread_tools
from dodona.tools.vault import add_vault_tools

# Where a project keeps prompts of its own: hidden in its vault, so that no tool can write there.
PROMPTS: Final = Path(".dodona", "prompts")

AddTools = Callable[[ToolRegistry], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Dodona, running in this process."""

    agency: AgentApi
    choice: ModelChoice
    routing: LiveRouter
    vault: Path
    store: str
    measures: Metrics
    standing: ServerStatus
    tokens: Tokens
    audit: AuditLog

    async def shutdown(self, patience: float) -> int:
        """Take no more questions and let runs end; how many were left to be resumed."""
        return await self.agency.engine.shutdown(patience)


@asynccontextmanager
async def open_runtime(
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
        measures = Metrics()
        store = await _store(stack, config, url, redactor, measures)
        bus = Bus()
        stack.callback(bus.close)
        counter = OfflineTokenCounter()
        staff = LiveAgents(
            stack, http=http, redactor=redactor, counter=counter, emit=bus.emit, follow=serve
        )
        await staff.apply(config)
        vaults = await _vaults(stack, store, config, follow=serve)
        codes = await _codes(stack, store, config, follow=serve)
        registry = _registry(store, vaults, codes)
        await add_web(registry, config, credentials, stack)
        if tools is not None:
            tools(registry)
        subscribers, rules = await open_notifications(stack, config, follow=serve)
        meter = _meter(config)
        means = RunDeps(
            storage=store,
            models=InstrumentedModels(staff.models, measures, price_list(config.settings)),
            meter=meter,
            toolbox=registry,
            call_tool=partial(call_tool, registry),
            counter=counter,
            emit=bus.emit,
            redact=redactor.hide_all,
            notes=vaults,
            code=codes,
            subscribers=subscribers,
            rules=rules,
            approvals=ApprovalGate(store.approvals),
            overrides=OverridesCache(store.pack_state),
            agents=staff.current,
            conduct=run_policy(config.settings),
            decisions=decisions,
        )
        agency = await _agency(stack, means, bus, staff, vaults, serve=serve)
        upkeep = Maintenance(store, config)
        await upkeep.begin(stack, again=serve)
        if reread is not None:
            takers = reload_handlers(staff, means.conduct, meter, upkeep, redactor)
            note = partial(_note_change, store.audit)
            followed = await asyncio.to_thread(ConfigReloader, config, reread, takers, note)
            await stack.enter_async_context(followed.following())
        subscribe_metrics(measures, bus, is_tool=partial(_is_tool, registry))
        add_collectors(measures, store=store, bus=bus, engine=agency.engine)
        yield Runtime(
            agency=agency,
            choice=staff.choices[""],
            routing=staff.routing,
            vault=vaults.default,
            store=str(locate(url)),
            measures=measures,
            standing=ServerStatus(store, agency.engine, measures, choice=lambda: staff.choices[""]),
            tokens=store.tokens,
            audit=store.audit,
        )


async def _store(
    stack: AsyncExitStack, config: Config, url: str, redactor: Redactor, measures: Metrics
) -> Store:
    opened = await Store.open(
        url,
        hide=redactor.hide,
        durability=config.settings.store.durability,
        on_write=measures.write_seconds.observe,
    )
    return await stack.enter_async_context(opened)


def _registry(store: Store, vaults: VaultIndexes, codes: CodeIndexes) -> ToolRegistry:
    """The tools for what is kept here."""
    registry = ToolRegistry()
    add_vault_tools(registry, vaults)
    add_code_tools(registry, codes)
    add_thread_tools(registry, store.threads)
    notify_self.add(registry, store.notices)
    return registry


def _is_tool(registry: ToolRegistry, name: str) -> bool:
    handed_on = (subagent.delegation.name for subagent in SUBAGENTS.values())
    return registry.find(name) is not None or name in handed_on


async def _vaults(
    stack: AsyncExitStack, store: Store, config: Config, *, follow: bool
) -> VaultIndexes:
    folder = await asyncio.to_thread(vault_folder, config)
    vaults = VaultIndexes(store.projects, default=folder, home=config.home, follow=follow)
    return await stack.enter_async_context(vaults)


async def _codes(
    stack: AsyncExitStack, store: Store, config: Config, *, follow: bool
) -> CodeIndexes:
    folders = await asyncio.to_thread(code_folders, config)
    codes = CodeIndexes(
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


async def _agency(
    stack: AsyncExitStack,
    means: RunDeps,
    bus: Bus,
    staff: LiveAgents,
    vaults: VaultIndexes,
    *,
    serve: bool,
) -> AgentApi:
    """The agency at work; in the end it leaves its runs to others."""
    make = partial(
        build_agent_api,
        means,
        events=bus,
        tree=staff.trees,
        prompt_folder=lambda brief: vaults.place(brief.project) / PROMPTS,
        serves=serve,
    )
    agency = await asyncio.to_thread(make)  # it reads files
    stack.push_async_callback(agency.engine.shutdown, 0.0)
    if serve:
        agency.engine.start()
    return agency


def _note_change(audit: AuditLog, what: str) -> None:
    audit.note(AuditEntry.of_admin(what, user_id=LOCAL_USER))
