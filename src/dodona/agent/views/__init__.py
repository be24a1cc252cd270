"""Views: stored records as JSON for HTTP and the command line, and the changes users can make."""

from dodona.agent.views.contexts import ContextViews
from dodona.agent.views.notices import NoticeViews
from dodona.agent.views.projects import ProjectViews, SettingsViews
from dodona.agent.views.rules import RuleViews
from dodona.agent.views.runs import ApprovalViews, RunViews
from dodona.agent.views.sessions import SessionViews
from dodona.agent.views.spending import SpendingViews
from dodona.agent.views.tree import TreeViews

__all__ = [
    "ApprovalViews",
    "ContextViews",
    "NoticeViews",
    "ProjectViews",
    "RuleViews",
    "RunViews",
    "SessionViews",
    "SettingsViews",
    "SpendingViews",
    "TreeViews",
]
