"""Tools, a leaf, a decision tree and a subscriber for a greenhouse.

The entry point of the package names this module, so it has to contain every extension.
"""

from dodona_greenhouse.decisions import CautiousTree
from dodona_greenhouse.leaves import plan
from dodona_greenhouse.subscribers import report_dry_plants
from dodona_greenhouse.tools import list_plants, water_plant

__all__ = ["CautiousTree", "list_plants", "plan", "report_dry_plants", "water_plant"]
