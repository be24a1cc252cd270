"""Views: what is kept, as people and programs read it, and what they may change of it."""

from dodona.agent.views.contexts import ContextViews
from dodona.agent.views.preferences import Preferences
from dodona.agent.views.projects import ProjectViews
from dodona.agent.views.runs import RunViews

__all__ = ["ContextViews", "Preferences", "ProjectViews", "RunViews"]
