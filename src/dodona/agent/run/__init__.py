"""The lifecycle of a run: engine, driver, replay, result and compression afterwards."""
