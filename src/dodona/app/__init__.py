"""The composition root: reads the config file and the environment, and puts the parts together."""
