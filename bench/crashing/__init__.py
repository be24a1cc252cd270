"""Kills a gateway repeatedly, and checks that nothing was lost, repeated or made up.

Import it with `bench` on the path: `from crashing.trial import Trial`.
"""
