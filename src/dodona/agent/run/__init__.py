"""One run from its start to its end: the engine, its driver, replay and result."""
