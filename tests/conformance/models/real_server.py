"""Serves a real model on the loopback: llama.cpp, both wires. Prints its address, then waits.

python real_server.py MODEL.gguf
"""

from __future__ import annotations

import sys

import xllamacpp


def main() -> None:
    """Serve until standard input is closed: whoever started us is gone then."""
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 2048
    params.n_parallel = 2
    params.cpuparams.n_threads = 1  # two are slower for a model this small
    params.cpuparams_batch.n_threads = 1
    params.ui = False
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
