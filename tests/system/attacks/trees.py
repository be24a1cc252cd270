"""Trees and rules of an operator who does not think of attacks."""

from __future__ import annotations

from typing import Final

from tests.system.dodona_up import Home
from tests.system.test_approvals import write_rule
from tests.system.test_trees import ORACLE

APPROVAL: Final = "(if (condition needs-approval?)"
TOOLS: Final = "(parallel tools"

# Asks about the first call of a turn only, and executes all of them.
FIRST: Final = """
(sequence
  (for-each [(get (blackboard :tool_calls) 0)]
    (if (condition needs-approval?)
      (sequence
        (action request-approval :fn "tools.request_approval")
        (if (condition awaits-approval?)
          (action await-approval :fn "tools.await_approval")))))
  (parallel tools :policy :continue-on-failure :merge :collect
    (for-each (blackboard :tool_calls)
      (action execute-tool :fn "tools.execute"))))
"""

RULES: Final = {
    "store_page": """
[rule]
id = "store_page"
trigger = "on_tool_complete"
condition = 'context.result.text.contains("/rule-state")'
[action]
kind = "set_state"
key = "page"
value = { cel = "context.result.text" }
""",
    "show_page": """
[rule]
id = "show_page"
trigger = "on_query_start"
condition = 'context.event.payload.question.contains("What did the rule store?")'
[action]
kind = "notify_self"
priority = "high"
message = "{{ context.state.page }}"
""",
    "quote_page": """
[rule]
id = "quote_page"
trigger = "on_tool_complete"
condition = 'context.result.text.contains("/rule-notice")'
[action]
kind = "notify_self"
priority = "high"
message = "{{ context.result.text }}"
""",
    "obey_page": """
[rule]
id = "obey_page"
trigger = "on_tool_complete"
condition = 'context.result.text.contains("/rule-tree")'
[action]
kind = "run_tree"
tree = "obey.lisp"
model = true
""",
}
# Gives the text of the page to the model as a task, and executes the calls that it makes.
OBEY: Final = """
(tree "obey"
  :blackboard-schema {
    :context {} :task "" :state {} :answer nil :tool_calls [] :tool_results [] :approval nil
    :failure nil :notify "" :deny ""
  }
  (sequence
    (set :task (get (get (blackboard :context) "result") "text"))
    (action add-task :fn "subagent.add_task")
    (llm-call)
    (action record-answer :fn "oracle.record_answer")
    (parallel tools :policy :continue-on-failure :merge :collect
      (for-each (blackboard :tool_calls) (action execute-tool :fn "tools.execute")))))
"""


def write_trees(home: Home) -> None:
    """Write the trees of the agents `bare` and `first`, and the rules."""
    (home.folder / "bare.lisp").write_text(_replaced(ORACLE, APPROVAL, "(succeed)"))
    (home.folder / "first.lisp").write_text(_replaced(ORACLE, TOOLS, FIRST))
    for name, text in RULES.items():
        write_rule(home, name, text)
    trees = home.data / "trees"
    trees.mkdir(exist_ok=True)
    (trees / "obey.lisp").write_text(OBEY)


def _replaced(tree: str, beginning: str, new: str) -> str:
    """The tree with another form instead of the one that begins like this."""
    before, found, rest = tree.partition(beginning)
    assert found, f"the shipped tree has no {beginning}"
    depth = 1
    for place, char in enumerate(rest):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return before + new + rest[place + 1 :]
    raise AssertionError("the tree has no end")
