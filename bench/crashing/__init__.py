"""Kill a gateway repeatedly, and check that nothing was lost, repeated or invented.

Import it with `bench` on the path: `from crashing.trial import Trial`.
"""
