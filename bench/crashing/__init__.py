"""Kills a gateway again and again, and looks whether anything was lost, repeated or made up.

Import it with `bench` on the path: `from crashing.trial import Trial`.
"""
