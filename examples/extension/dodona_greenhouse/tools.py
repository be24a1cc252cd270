"""Two tools. They use files, so they are plain functions, which Dodona runs in threads."""

from enum import StrEnum

from dodona import Context, Result, ToolRetry, tool
from dodona_greenhouse import plants


class State(StrEnum):
    """The state of a plant."""

    WET = "wet"
    DRY = "dry"


@tool(category="greenhouse", effect="none", writes=False, sends=False, reads_private=False)
def list_plants(state: State | None = None) -> Result:
    """List the plants of the greenhouse.

    state: only plants in this state
    """
    found = {name: each for name, each in plants.load().items() if state in (None, each)}
    return Result(found, sources=[plants.file()])


@tool(category="greenhouse", effect="keyed", sends=False, reads_private=False)
def water_plant(ctx: Context, name: str) -> str:
    """Water a plant.

    name: the name of the plant, as list_plants returns it
    """
    known = plants.load()
    if name not in known:
        raise ToolRetry(f"there is no plant {name}; call list_plants")
    ctx.progress(f"watering the {name}")
    plants.save({**known, name: "wet"})
    return f"The {name} is wet."
