"""Ten thousand connections to `/ws` of one gateway, one percent of them chatting.

    python bench/websockets.py [--connections 10000] [--seconds 30] [--json FILE]

`dodona up` runs in its own process, and so do the clients and the model, which streams fifty pieces
of text per second to each chatting client; these ask again as soon as they are answered. Two
hundred times per second a random idle connection sends a ping. The memory per connection is the
growth of the gateway when all are open and idle, divided by their number.

Routing is measured in this process: 100,000 bindings that use every combination of fields, and
messages that match none or the least specific of them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

from dodona.core.domain.routing import BINDING_FIELDS, Binding, Router

HERE = Path(__file__).parent
ONE_IN = 100  # chats
LEAST_KB = 40.0
MOST_MS = 25.0
MOST_US = 20.0
BINDINGS = 100_000
PATIENCE = 120.0


class Peer:
    """A process that communicates in lines."""

    def __init__(self, *command: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def told(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the clients exited")
        return json.loads(line)

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def gateway(folder: Path, model: int) -> Iterator[tuple[int, str]]:
    """Start `dodona up`; yield its process and its address."""
    (folder / "vault").mkdir()
    config = folder / "dodona.toml"
    config.write_text(
        '[agent]\nprovider = "openai-compatible"\nmodel = "stream50-100"\n'
        f'base_url = "http://127.0.0.1:{model}/v1"\n[vault]\npath = "{folder / "vault"}"\n'
        '[log]\nlevel = "warning"\n'
    )
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environment = {**kept, "HOME": str(folder), "DODONA_CONFIG": str(config)}
    command = [Path(sys.executable).parent / "dodona", "up", "--port", "0"]
    process = subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
    try:
        yield process.pid, address(folder / ".dodona" / "gateway.json", process)
    finally:
        process.terminate()
        process.wait(PATIENCE)


def address(file: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return json.loads(file.read_text())["url"]
        except (FileNotFoundError, ValueError):
            time.sleep(0.05)
    raise SystemExit("`dodona up` did not start")


def memory(pid: int) -> float:
    """Resident memory of the process, in kilobytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def cpu(pid: int) -> float:
    """CPU time of the process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(connections: int, seconds: float) -> dict[str, Any]:
    model = Peer(HERE / "mock_model.py")
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            gateway(Path(folder), model.told()) as (pid, url),
        ):
            clients = Peer(
                HERE / "idle_clients.py", url, connections, connections // ONE_IN, seconds
            )
            try:
                return observe(clients, pid, connections)
            finally:
                clients.end()
    finally:
        model.end()


def observe(clients: Peer, pid: int, connections: int) -> dict[str, Any]:
    before = memory(pid)
    told = clients.told()
    time.sleep(1)
    idle = memory(pid)
    clients.go_on()
    quiet = clients.told()["quiet"]
    busy, begun = cpu(pid), perf_counter()
    clients.go_on()
    seen = clients.told()
    lasted = perf_counter() - begun
    return {
        "connections": connections,
        "chatting": connections // ONE_IN,
        "connections opened per second": told["connected"] / told["seconds"],
        "memory before, MB": before / 1024,
        "memory of all, MB": idle / 1024,
        "KB per idle connection": (idle - before) / connections,
        "memory while they chat, MB": memory(pid) / 1024,
        "pings": len(seen["ping"]),
        "idle ping p50, ms": at(quiet, 0.5),
        "idle ping p99, ms": at(quiet, 0.99),
        "ping p50, ms": at(seen["ping"], 0.5),
        "ping p99, ms": at(seen["ping"], 0.99),
        "ping p100, ms": seen["ping"][-1],
        "answers": seen["answers"],
        "events per second": seen["events"] / lasted,
        "gateway's share of a core": (cpu(pid) - busy) / lasted,
        "connections lost": connections - seen["open"],
        "faults": seen["faults"],
    }


def at(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))]


def routing() -> dict[str, float]:
    """Microseconds to route a message, the best of several rounds."""
    masks = [mask for mask in product((True, False), repeat=len(BINDING_FIELDS)) if any(mask)]
    begun = perf_counter()
    router = Router(
        Binding(
            agent_id=f"agent-{number % 7}",
            **{
                name: f"{name}-{number}"
                for name, is_set in zip(BINDING_FIELDS, masks[number % len(masks)], strict=True)
                if is_set
            },
        )
        for number in range(BINDINGS)
    )
    built = perf_counter() - begun
    least = next(each for each in reversed(router.bindings) if each.fields == ("channel",))
    unknown = dict.fromkeys(BINDING_FIELDS, "unknown")
    return {
        "bindings": BINDINGS,
        "made in, s": built,
        "match none, µs": microseconds(router, unknown),
        "match by channel, µs": microseconds(router, {**unknown, "channel": least.channel or ""}),
    }


def microseconds(router: Router, message: dict[str, str]) -> float:
    rounds: list[float] = []
    for _ in range(20):
        begun = perf_counter()
        for _ in range(1_000):
            router.resolve(**message)
        rounds.append((perf_counter() - begun) * 1000)
    return min(rounds)


def show(rows: dict[str, Any]) -> None:
    width = max(map(len, rows))
    for name, value in rows.items():
        if name != "faults":
            print(f"{name:{width}}  {value:>12,.2f}" if isinstance(value, float) else
                  f"{name:{width}}  {value:>12,}")  # fmt: skip


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--connections", type=int, default=10_000)
    options.add_argument("--seconds", type=float, default=30.0)
    options.add_argument("--json", type=Path, help="also write the figures to this file")
    given = options.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    figures, routes = measure(given.connections, given.seconds), routing()
    show(figures)
    print()
    show(routes)
    met = {
        f"at most {LEAST_KB:g} KB per idle connection": figures["KB per idle connection"]
        <= LEAST_KB,
        f"p99 of a ping less than {MOST_MS:g} ms": figures["ping p99, ms"] < MOST_MS,
        "no connection lost, no fault": not figures["connections lost"] and not figures["faults"],
        f"{BINDINGS:,} bindings resolve in less than {MOST_US:g} µs": max(
            routes["match none, µs"], routes["match by channel, µs"]
        )
        < MOST_US,
    }
    print()
    for fault in figures["faults"]:
        print(f"  error: {fault}")
    for check, is_met in met.items():
        print(f"  {'met   ' if is_met else 'MISSED'}  {check}")
    document = {"websockets": figures, "routing": routes, "met": met}
    print("\n" + json.dumps(document))
    if given.json:
        given.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
