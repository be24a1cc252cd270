"""What changes while Dodona runs, when its config is saved."""

from __future__ import annotations

from dataclasses import fields

from dodona.agent.means import Conduct
from dodona.app import logs
from dodona.app.building import ceilings, price_list
from dodona.app.config import Config
from dodona.app.reloading import Take
from dodona.app.settings import Settings
from dodona.app.staff import Staff
from dodona.app.upkeep import Upkeep
from dodona.documents import KeyPath
from dodona.metering import Meter
from dodona.net.redactor import Redactor


def conduct_of(settings: Settings) -> Conduct:
    return Conduct(
        summarises=settings.librarian.summarise,
        compresses=settings.context.compress,
        holds_effects=settings.web.hold_effects,
        approval_seconds=settings.approvals.timeout_seconds,
        token_budget=settings.context.token_budget,
    )


def live(
    staff: Staff, conduct: Conduct, meter: Meter, upkeep: Upkeep, redactor: Redactor
) -> dict[KeyPath, Take]:
    """Who takes what has changed, by the first names of its keys; the rest needs a restart."""

    async def conduct_now(config: Config) -> None:
        fresh = conduct_of(config.settings)
        for field in fields(fresh):
            setattr(conduct, field.name, getattr(fresh, field.name))
        upkeep.take(config)

    async def log_now(config: Config) -> None:
        logs.start(config.settings.log, redactor)

    async def terms_now(config: Config) -> None:
        meter.take(ceilings(config.settings), price_list(config.settings))

    return {
        ("agent",): staff.take,
        ("agents",): staff.take,
        ("bindings",): staff.take,
        ("budgets",): terms_now,
        ("prices",): terms_now,
        ("log",): log_now,
        ("librarian", "summarise"): conduct_now,
        ("context",): conduct_now,
        ("web", "hold_effects"): conduct_now,
        ("approvals",): conduct_now,
        ("audit",): conduct_now,
    }
