"""Running a tree: frames, steps, the blackboard and timers."""
