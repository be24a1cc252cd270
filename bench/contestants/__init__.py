"""The contestants of `bench/run.py`: Dodona, the lower bound and the peers.

Each module is loaded in its own process, by a Python with its dependencies, and has a class
`Contestant`. They share only the module `contestant`.
"""
