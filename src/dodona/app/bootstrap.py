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
from dodona.agent.turn_control.decision import DEFAULT_DECISION_TREE
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
from dodona.app.projects.code import CodeIndexes, code_folders, open_code_embeddings
from dodona.app.projects.vaults import VaultIndexes, vault_folder
from dodona.app.projects.web import register_web_tools
from dodona.app.telemetry.collect import ServerStatus, add_collectors, subscribe_metrics
from dodona.core.domain.audit import AuditEntry
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.domain.routing import LiveRouter
from dodona.metering import Meter
from dodona.models.token_counter import OfflineTokenCounter
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor
from dodona.notify.bus import Bus
from dodona.store import Store, parse_location
from dodona.store.accounts.api_tokens import ApiTokens
from dodona.store.accounts.audit import AuditLog
from dodona.telemetry.metrics import Metrics
from dodona.tools import notify_self
from dodona.tools.call import call_tool
from dodona.tools.code import add_code_tools
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads import add_thread_tools
from dodona.tools.vault import add_vault_tools

# Where a project keeps prompts of its own: hidden in its vault, so that no tool can write there.
PROMPTS_FOLDER: Final = Path(".dodona", "prompts")

AddTools = Callable[[ToolRegistry], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Dodona, running in this process."""

    api: AgentApi
    model_choice: ModelChoice
    router: LiveRouter
    vault: Path
    store_location: str
    metrics: Metrics
    status: ServerStatus
    tokens: ApiTokens
    audit: AuditLog

    async def shutdown(self, grace_seconds: float) -> int:
        """Take no more questions and let runs end; how many were left to be resumed."""
        return await self.api.engine.shutdown(grace_seconds)


@asynccontextmanager
async def open_runtime(
    config: Config,
    credentials: Credentials,
    redactor: Redactor,
    *,
    serve: bool,
    add_tools: AddTools | None = None,
    decisions: str = DEFAULT_DECISION_TREE,
    reload_config: Callable[[], Config] | None = None,
) -> AsyncGenerator[Runtime]:
    """Dodona on this config. `serve`: it also takes up what a process that died has left.

    Whoever embeds it may add `tools`, and name a decision tree that they registered. With
    `reread` the config is followed: it loads it anew.
    """
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(HttpPool())
        url = await asyncio.to_thread(store_url, config, credentials)
        measures = Metrics()
        store = await _open_store(stack, config, url, redactor, measures)
        bus = Bus()
        stack.callback(bus.close)
        counter = OfflineTokenCounter()
        staff = LiveAgents(
            stack, http=http, redactor=redactor, counter=counter, emit=bus.emit, watch=serve
        )
        await staff.apply(config)
        vaults = await _open_vaults(stack, store, config, watch=serve)
        codes = await _open_code_indexes(stack, store, config, watch=serve)
        registry = _build_tool_registry(store, vaults, codes)
        await register_web_tools(registry, config, credentials, stack)
        if add_tools is not None:
            add_tools(registry)
        subscribers, rules = await open_notifications(stack, config, watch=serve)
        meter = _build_meter(config)
        means = RunDeps(
            storage=store,
            models=InstrumentedModels(staff.models, measures, price_list(config.settings)),
            meter=meter,
            toolbox=registry,
            call_tool=partial(call_tool, registry),
            token_counter=counter,
            emit=bus.emit,
            redact=redactor.redact_all,
            notes=vaults,
            code=codes,
            subscribers=subscribers,
            rules=rules,
            approvals=ApprovalGate(store.approvals),
            overrides=OverridesCache(store.pack_state),
            agents=staff.current,
            policy=run_policy(config.settings),
            decision_tree=decisions,
        )
        agency = await _start_agent_api(stack, means, bus, staff, vaults, serve=serve)
        upkeep = Maintenance(store, config)
        await upkeep.start(stack, repeat=serve)
        if reload_config is not None:
            takers = reload_handlers(staff, means.policy, meter, upkeep, redactor)
            note = partial(_audit_change, store.audit)
            followed = await asyncio.to_thread(ConfigReloader, config, reload_config, takers, note)
            await stack.enter_async_context(followed.watching())
        subscribe_metrics(measures, bus, is_tool=partial(_is_tool, registry))
        add_collectors(measures, store=store, bus=bus, engine=agency.engine)
        yield Runtime(
            api=agency,
            model_choice=staff.model_choices[""],
            router=staff.router,
            vault=vaults.default,
            store_location=str(parse_location(url)),
            metrics=measures,
            status=ServerStatus(
                store, agency.engine, measures, model_choice=lambda: staff.model_choices[""]
            ),
            tokens=store.api_tokens,
            audit=store.audit,
        )


async def _open_store(
    stack: AsyncExitStack, config: Config, url: str, redactor: Redactor, metrics: Metrics
) -> Store:
    opened = await Store.open(
        url,
        redact=redactor.redact,
        durability=config.settings.store.durability,
        on_write=metrics.write_seconds.observe,
    )
    return await stack.enter_async_context(opened)


def _build_tool_registry(
    store: Store, vaults: VaultIndexes, code_indexes: CodeIndexes
) -> ToolRegistry:
    """The tools for what is kept here."""
    registry = ToolRegistry()
    add_vault_tools(registry, vaults)
    add_code_tools(registry, code_indexes)
    add_thread_tools(registry, store.threads)
    notify_self.add(registry, store.notices)
    return registry


def _is_tool(registry: ToolRegistry, name: str) -> bool:
    handed_on = (subagent.delegation_tool.name for subagent in SUBAGENTS.values())
    return registry.find(name) is not None or name in handed_on


async def _open_vaults(
    stack: AsyncExitStack, store: Store, config: Config, *, watch: bool
) -> VaultIndexes:
    folder = await asyncio.to_thread(vault_folder, config)
    vaults = VaultIndexes(store.projects, default=folder, home=config.home, watch=watch)
    return await stack.enter_async_context(vaults)


async def _open_code_indexes(
    stack: AsyncExitStack, store: Store, config: Config, *, watch: bool
) -> CodeIndexes:
    folders = await asyncio.to_thread(code_folders, config)
    codes = CodeIndexes(
        store.projects,
        default=folders,
        home=config.home,
        max_file_kb=config.settings.code.max_file_kb,
        meaning=await asyncio.to_thread(open_code_embeddings, config),
        watch=watch,
    )
    return await stack.enter_async_context(codes)


def _build_meter(config: Config) -> Meter:
    settings = config.settings
    return Meter(ceilings(settings), prices=price_list(settings), ledger=ledger)


async def _start_agent_api(
    stack: AsyncExitStack,
    deps: RunDeps,
    bus: Bus,
    agents: LiveAgents,
    vaults: VaultIndexes,
    *,
    serve: bool,
) -> AgentApi:
    """The agency at work; in the end it leaves its runs to others."""
    make = partial(
        build_agent_api,
        deps,
        events=bus,
        get_tree=agents.trees,
        prompt_folder=lambda brief: vaults.folder_of(brief.project) / PROMPTS_FOLDER,
        is_server=serve,
    )
    agency = await asyncio.to_thread(make)  # it reads files
    stack.push_async_callback(agency.engine.shutdown, 0.0)
    if serve:
        agency.engine.start()
    return agency


def _audit_change(audit: AuditLog, change: str) -> None:
    audit.record(AuditEntry.for_admin(change, user_id=LOCAL_USER))
