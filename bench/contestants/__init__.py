"""Those who answer the same questions in `bench/run.py`: ours, the limit and the peers.

Each module is loaded in a process of its own, by a Python that has what it needs, and has a class
`Contestant`. Nothing here is imported by two of them but `contestant`.
"""
