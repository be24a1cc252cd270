"""Builds a running Dodona: opens all adapters in order and closes them in reverse."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Final

from dodona.agent.api import AgentApi, build_agent_api
from dodona.agent.run_context.approvals import ApprovalGate
from dodona.agent.run_context.deps import RunDeps, RunPolicy
from dodona.agent.run_context.overrides import OverridesCache
from dodona.agent.run_context.registry import subagent_name
from dodona.app.agents.registry import LiveAgents
from dodona.app.config.config import Config
from dodona.app.config.reload import ConfigReloader, ReloadHandler
from dodona.app.config.settings import Settings
from dodona.app.config.store_url import store_url
from dodona.app.extensions.blocking import BlockingExtensions
from dodona.app.extensions.loading import ExtensionLoader
from dodona.app.extensions.registry import AppRegistry, build_registry
from dodona.app.extensions.reload import ExtensionReloader
from dodona.app.maintenance import Maintenance
from dodona.app.models.credentials import Credentials
from dodona.app.models.factory import ModelBuilder, ceilings, price_list
from dodona.app.models.instrumented import InstrumentedModels
from dodona.app.models.selection import ModelChoice
from dodona.app.notifications import open_notifications
from dodona.app.projects.code import CodeIndexes, code_folders, open_code_embeddings
from dodona.app.projects.vaults import VaultIndexes, untrusted_notes, vault_folder
from dodona.app.projects.web import register_web_tools
from dodona.app.telemetry.collect import ServerStatus, add_collectors, subscribe_metrics
from dodona.app.telemetry.logging import configure_logging
from dodona.concurrency.file_watcher import FileWatcher
from dodona.concurrency.loop_monitor import watch_loop
from dodona.core.domain.audit import AuditEntry
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.domain.routing import LiveRouter
from dodona.core.domain.trust import Marks, merge_marks
from dodona.documents import KeyPath
from dodona.gateway.settings import GatewaySettings
from dodona.gateway.shutdown import Shutdown
from dodona.gateway.state import GatewayState
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
from dodona.tools.code import add_code_tools
from dodona.tools.passages import add_passage_tool
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads import add_thread_tools
from dodona.tools.vault import add_vault_tools

# A project's custom prompts: in a hidden folder of its vault, where no tool can write.
PROMPTS_FOLDER: Final = Path(".dodona", "prompts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A Dodona that runs in this process."""

    api: AgentApi
    model_choice: ModelChoice
    router: LiveRouter
    vault: Path
    store_location: str
    metrics: Metrics
    status: ServerStatus
    tokens: ApiTokens
    audit: AuditLog
    get_registry: Callable[[], AppRegistry]

    async def shutdown(self, grace_seconds: float) -> int:
        """Reject new questions and wait for runs to end; return how many remain to be resumed."""
        return await self.api.engine.shutdown(grace_seconds)

    def gateway_state(
        self, settings: GatewaySettings, redactor: Redactor, shutdown: Shutdown | None = None
    ) -> GatewayState:
        """Return the state of a gateway to this Dodona."""
        return GatewayState(
            api=self.api,
            settings=settings,
            check_readiness=self.status.check_ready,
            tokens=self.tokens,
            audit=self.audit,
            metrics=self.metrics,
            get_status=self.status.snapshot,
            routing=self.router,
            redactor=redactor,
            shutdown=shutdown or Shutdown(),
        )


@asynccontextmanager
async def open_runtime(
    config: Config,
    credentials: Credentials,
    redactor: Redactor,
    *,
    serve: bool,
    loader: ExtensionLoader | None = None,
    reload_config: Callable[[], Config] | None = None,
) -> AsyncGenerator[Runtime]:
    """Open a Dodona with this config, and close it when the block ends.

    With `serve`, it also resumes the runs of a process that died, and loads extensions again when
    their files change. `loader` can have extensions besides those of the config. With
    `reload_config`, which loads the config again, changes to the config apply while it runs.
    """
    loader = loader or ExtensionLoader()
    async with AsyncExitStack() as stack:
        await asyncio.to_thread(credentials.register_all)
        http = await stack.enter_async_context(HttpPool())
        url = await asyncio.to_thread(store_url, config, credentials)
        metrics = Metrics()
        store = await _open_store(stack, config, url, redactor, metrics)
        watcher = await asyncio.to_thread(_build_watcher, config, url) if serve else None
        bus = Bus()
        stack.callback(bus.close)
        counter = OfflineTokenCounter()
        vaults = await _open_vaults(stack, store, config, watcher)
        code_indexes = await _open_code_indexes(stack, store, config, watcher)
        tools = _build_tool_registry(store, vaults, code_indexes)
        await register_web_tools(tools, config, credentials, stack)
        stack.callback(loader.close)
        agents = LiveAgents(
            stack,
            builder=ModelBuilder(http=http, redactor=redactor, counter=counter),
            emit=bus.emit,
            watcher=watcher,
            loader=loader,
            build_registry=partial(build_registry, tools=tools.tools()),
        )
        await agents.apply(config)
        subscribers, rules = await open_notifications(
            stack, config, watcher, lambda: agents.registry
        )
        meter = _build_meter(config)
        deps = RunDeps(
            storage=store,
            models=InstrumentedModels(agents.models, metrics, price_list(config.settings)),
            meter=meter,
            registry=lambda: agents.registry.agent,
            token_counter=counter,
            emit=bus.emit,
            redact=redactor.redact_all,
            notes=vaults,
            code=code_indexes,
            subscribers=subscribers,
            rules=rules,
            approvals=ApprovalGate(store.approvals),
            overrides=OverridesCache(store.pack_state),
            agents=agents.current,
            policy=run_policy(config.settings),
        )
        api = await _start_agent_api(stack, deps, bus, agents, vaults, serve=serve)
        maintenance = Maintenance(store, config)
        await maintenance.start(stack, repeat=serve)
        reloader = ExtensionReloader(agents, subscribers, rules)
        if watcher is not None:
            await stack.enter_async_context(reloader.watching(watcher))
        if reload_config is not None:
            handlers = reload_handlers(reloader, deps.policy, meter, maintenance, redactor)
            handlers |= trust_handlers(vaults, code_indexes)
            config_reloader = await asyncio.to_thread(
                ConfigReloader,
                config,
                partial(_reload_config, reload_config, redactor),
                handlers,
                partial(_audit_change, store.audit),
            )
            await stack.enter_async_context(config_reloader.watching(watcher or FileWatcher()))
        blocking = BlockingExtensions(lambda: agents.registry)
        if serve:
            await stack.enter_async_context(watch_loop(blocking.record))
        subscribe_metrics(metrics, bus, is_tool=partial(_is_tool, agents))
        add_collectors(metrics, store=store, bus=bus, engine=api.engine)
        yield Runtime(
            api=api,
            model_choice=agents.model_choices[""],
            router=agents.router,
            vault=vaults.default,
            store_location=str(parse_location(url)),
            metrics=metrics,
            status=ServerStatus(
                store,
                api.engine,
                metrics,
                model_choice=lambda: agents.model_choices[""],
                blocking=blocking,
            ),
            tokens=store.api_tokens,
            audit=store.audit,
            get_registry=lambda: agents.registry,
        )


async def _open_store(
    stack: AsyncExitStack, config: Config, url: str, redactor: Redactor, metrics: Metrics
) -> Store:
    store = await Store.open(
        url,
        redact=redactor.redact,
        durability=config.settings.store.durability,
        on_write=metrics.write_seconds.observe,
    )
    return await stack.enter_async_context(store)


def _build_watcher(config: Config, url: str) -> FileWatcher:
    """Return a watcher that polls the folders which Dodona itself writes to."""
    database = parse_location(url).path
    folders = [config.home, config.home / "indexes", *([database.parent] if database else [])]
    return FileWatcher(folders)


def _build_tool_registry(
    store: Store, vaults: VaultIndexes, code_indexes: CodeIndexes
) -> ToolRegistry:
    """Return a registry with the tools for notes, code, threads and notices."""
    registry = ToolRegistry()
    add_vault_tools(registry, vaults)
    code_marks = partial(_code_marks, vaults, code_indexes)
    add_code_tools(registry, code_indexes, code_marks)
    add_thread_tools(registry, store.threads)
    add_passage_tool(registry, vaults, code_indexes, store.threads, code_marks=code_marks)
    notify_self.add(registry, store.notices)
    return registry


def _is_tool(agents: LiveAgents, name: str) -> bool:
    registry = agents.registry.agent
    return registry.toolbox.find(name) is not None or subagent_name(name) in registry.subagents


async def _code_marks(
    vaults: VaultIndexes, code_indexes: CodeIndexes, user_id: str, project_id: str
) -> Marks:
    """Return the marks of a project's code; notes in its folders are code too."""
    folder = await vaults.folder(user_id, project_id)
    vault = await asyncio.to_thread(folder.resolve)
    roots = await code_indexes.folders(user_id, project_id)
    if not any(vault.is_relative_to(root) or root.is_relative_to(vault) for root in roots):
        return code_indexes.marks
    notes = await vaults(user_id, project_id)
    return merge_marks(code_indexes.marks, await notes.all_marks())


async def _open_vaults(
    stack: AsyncExitStack, store: Store, config: Config, watcher: FileWatcher | None
) -> VaultIndexes:
    folder = await asyncio.to_thread(vault_folder, config)
    vaults = VaultIndexes(
        store,
        default=folder,
        home=config.home,
        untrusted=untrusted_notes(config),
        watcher=watcher,
    )
    return await stack.enter_async_context(vaults)


async def _open_code_indexes(
    stack: AsyncExitStack, store: Store, config: Config, watcher: FileWatcher | None
) -> CodeIndexes:
    folders = await asyncio.to_thread(code_folders, config)
    code_indexes = CodeIndexes(
        store.projects,
        default=folders,
        home=config.home,
        max_file_kb=config.settings.code.max_file_kb,
        scorer=await asyncio.to_thread(open_code_embeddings, config),
        untrusted=config.settings.code.untrusted,
        watcher=watcher,
    )
    return await stack.enter_async_context(code_indexes)


def _build_meter(config: Config) -> Meter:
    settings = config.settings
    return Meter(
        ceilings(settings),
        prices=price_list(settings),
        wait_seconds=settings.budgets.wait_seconds,
    )


async def _start_agent_api(
    stack: AsyncExitStack,
    deps: RunDeps,
    bus: Bus,
    agents: LiveAgents,
    vaults: VaultIndexes,
    *,
    serve: bool,
) -> AgentApi:
    """Build the agent API and start its engine. When the stack closes, the engine shuts down."""
    build = partial(
        build_agent_api,
        deps,
        events=bus,
        get_tree=agents.trees,
        prompt_folder=lambda inputs: vaults.folder_of(inputs.project) / PROMPTS_FOLDER,
        is_server=serve,
    )
    api = await asyncio.to_thread(build)  # reads files
    stack.push_async_callback(api.engine.shutdown, 0.0)
    if serve:
        api.engine.start()
    return api


def _reload_config(reload_config: Callable[[], Config], redactor: Redactor) -> Config:
    """Load the config again, and register the secrets that it names. Blocks."""
    config = reload_config()
    Credentials(config, os.environ, redactor).register_all()
    return config


def _audit_change(audit: AuditLog, change: str) -> None:
    audit.record(AuditEntry.for_admin(change, user_id=LOCAL_USER))


# -- settings that apply while it runs -----------------------------------------------------------


def run_policy(settings: Settings) -> RunPolicy:
    """Return the run policy that the settings describe."""
    return RunPolicy(
        summarise_results=settings.librarian.summarise,
        summarise_lists=settings.librarian.summarise_lists,
        compress_context=settings.context.compress,
        hold_calls=settings.trust.hold_calls,
        allow_versioned_writes=settings.trust.writes == "versioned",
        approval_timeout=settings.approvals.timeout_seconds,
        token_budget=settings.context.token_budget,
    )


def trust_handlers(vaults: VaultIndexes, code_indexes: CodeIndexes) -> dict[KeyPath, ReloadHandler]:
    """Return the handlers of the settings that mark notes and code as untrusted."""

    async def apply_vaults(config: Config) -> None:
        vaults.apply(config)

    async def apply_code(config: Config) -> None:
        code_indexes.apply(config)

    return {("vault", "untrusted"): apply_vaults, ("code", "untrusted"): apply_code}


def reload_handlers(
    reloader: ExtensionReloader,
    policy: RunPolicy,
    meter: Meter,
    maintenance: Maintenance,
    redactor: Redactor,
) -> dict[KeyPath, ReloadHandler]:
    """Return the handler of each reloadable key prefix. All other keys need a restart."""

    async def apply_policy(config: Config) -> None:
        fresh = run_policy(config.settings)
        for field in fields(fresh):
            setattr(policy, field.name, getattr(fresh, field.name))
        maintenance.apply(config)

    async def apply_logging(config: Config) -> None:
        configure_logging(config.settings.log, redactor)

    async def apply_prices(config: Config) -> None:
        settings = config.settings
        meter.update(
            ceilings(settings),
            prices=price_list(settings),
            wait_seconds=settings.budgets.wait_seconds,
        )

    return {
        ("agent",): reloader.apply,
        ("agents",): reloader.apply,
        ("bindings",): reloader.apply,
        ("extend",): reloader.apply,
        ("budgets",): apply_prices,
        ("prices",): apply_prices,
        ("log",): apply_logging,
        ("librarian",): apply_policy,
        ("context",): apply_policy,
        ("trust", "hold_calls"): apply_policy,
        ("trust", "writes"): apply_policy,
        ("approvals",): apply_policy,
        ("audit",): apply_policy,
        ("vault", "versions_days"): apply_policy,
        ("vault", "versions_mb"): apply_policy,
    }
