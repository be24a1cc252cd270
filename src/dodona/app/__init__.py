"""The composition root: reads the config file and the environment, and wires all components."""
