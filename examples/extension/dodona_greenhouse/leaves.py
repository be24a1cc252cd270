"""A leaf, for the tree `greenhouse.lisp`."""

from dodona import Blackboard, leaf


@leaf("greenhouse.plan", reads=("question",), writes=("max_iterations",))
def plan(bb: Blackboard) -> None:
    """Allow at most five turns for a short question."""
    if len(bb["question"].split()) < 50:
        bb["max_iterations"] = min(5, bb["max_iterations"])
