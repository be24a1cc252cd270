"""A subscriber: it turns events into a notice for the model."""

from collections.abc import Sequence

from dodona import Event, subscriber


@subscriber("tool.call.success", filter='payload.tool == "water_plant"', inject_at="after_tool")
def report_dry_plants(events: Sequence[Event]) -> str:
    """Remind the model to look for other dry plants."""
    return f"{len(events)} watered. Call list_plants to see which plants are still dry."
