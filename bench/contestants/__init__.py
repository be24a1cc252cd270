"""The contestants of `bench/run.py`, which answer the same questions: Dodona, the limit, the peers.

Each module has a class `Contestant` and is loaded in its own process, by a Python that has its
dependencies. They share nothing but the module `contestant`.
"""
