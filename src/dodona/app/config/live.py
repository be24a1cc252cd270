"""What changes while Dodona runs, when its config is saved."""

from __future__ import annotations

from dataclasses import fields

from dodona.agent.run_context.deps import RunPolicy
from dodona.app.agents.registry import LiveAgents
from dodona.app.config.config import Config
from dodona.app.config.reload import ReloadHandler
from dodona.app.config.settings import Settings
from dodona.app.maintenance import Maintenance
from dodona.app.models.factory import ceilings, price_list
from dodona.app.telemetry import logging as logs
from dodona.documents import KeyPath
from dodona.metering import Meter
from dodona.net.redactor import Redactor


def run_policy(settings: Settings) -> RunPolicy:
    return RunPolicy(
        summarise_results=settings.librarian.summarise,
        compress_context=settings.context.compress,
        require_approval_after_untrusted=settings.web.hold_effects,
        approval_timeout=settings.approvals.timeout_seconds,
        token_budget=settings.context.token_budget,
    )


def reload_handlers(
    agents: LiveAgents,
    policy: RunPolicy,
    meter: Meter,
    maintenance: Maintenance,
    redactor: Redactor,
) -> dict[KeyPath, ReloadHandler]:
    """Who takes what has changed, by the first names of its keys; the rest needs a restart."""

    async def conduct_now(config: Config) -> None:
        fresh = run_policy(config.settings)
        for field in fields(fresh):
            setattr(policy, field.name, getattr(fresh, field.name))
        maintenance.apply(config)

    async def log_now(config: Config) -> None:
        logs.configure_logging(config.settings.log, redactor)

    async def terms_now(config: Config) -> None:
        meter.update(ceilings(config.settings), price_list(config.settings))

    return {
        ("agent",): agents.apply,
        ("agents",): agents.apply,
        ("bindings",): agents.apply,
        ("budgets",): terms_now,
        ("prices",): terms_now,
        ("log",): log_now,
        ("librarian", "summarise"): conduct_now,
        ("context",): conduct_now,
        ("web", "hold_effects"): conduct_now,
        ("approvals",): conduct_now,
        ("audit",): conduct_now,
    }
