"""Applies config changes to a running Dodona."""

from __future__ import annotations

from dataclasses import fields

from dodona.agent.run_context.deps import RunPolicy
from dodona.app.agents.registry import LiveAgents
from dodona.app.config.config import Config
from dodona.app.config.reload import ReloadHandler
from dodona.app.config.settings import Settings
from dodona.app.maintenance import Maintenance
from dodona.app.models.factory import ceilings, price_list
from dodona.app.telemetry.logging import configure_logging
from dodona.documents import KeyPath
from dodona.metering import Meter
from dodona.net.redactor import Redactor


def run_policy(settings: Settings) -> RunPolicy:
    """Return the run policy that the settings describe."""
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
    """Return the handler of each reloadable key prefix. All other keys need a restart."""

    async def apply_policy(config: Config) -> None:
        fresh = run_policy(config.settings)
        for field in fields(fresh):
            setattr(policy, field.name, getattr(fresh, field.name))
        maintenance.apply(config)

    async def apply_logging(config: Config) -> None:
        configure_logging(config.settings.log, redactor)

    async def apply_prices(config: Config) -> None:
        meter.update(ceilings(config.settings), price_list(config.settings))

    return {
        ("agent",): agents.apply,
        ("agents",): agents.apply,
        ("bindings",): agents.apply,
        ("budgets",): apply_prices,
        ("prices",): apply_prices,
        ("log",): apply_logging,
        ("librarian", "summarise"): apply_policy,
        ("context",): apply_policy,
        ("web", "hold_effects"): apply_policy,
        ("approvals",): apply_policy,
        ("audit",): apply_policy,
    }
