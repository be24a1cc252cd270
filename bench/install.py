"""Size of a default install from this checkout, in a new virtual environment.

    python bench/install.py [--json FILE]

Counts everything in the environment except pip: megabytes on disk, including compiled files, and
distributions, including Dodona.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent
MOST_MB = 250
MOST_DISTRIBUTIONS = 80


def installed(folder: Path) -> dict[str, object]:
    """Create an environment, install into it, and measure it."""
    python = folder / "bin" / "python"
    run([sys.executable, "-m", "venv", str(folder)])
    empty = megabytes(folder)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "install", "-c", str(CHECKOUT / "constraints.txt"), str(CHECKOUT)])
    listed = run([*pip, "list", "--format=json"])
    names = [
        each["name"] for each in json.loads(listed) if each["name"] not in ("pip", "setuptools")
    ]
    return {
        "mb": round(megabytes(folder) - empty, 1),
        "distributions": len(names),
        "largest": largest(next(folder.glob("lib/python*/site-packages"))),
    }


def megabytes(folder: Path) -> float:
    """Size of the files on disk."""
    files = (path.lstat() for path in folder.rglob("*"))
    return sum(found.st_blocks for found in files) * 512 / 1e6


def largest(folder: Path) -> dict[str, float]:
    """The five largest packages, in MB."""
    packages = [path for path in folder.iterdir() if path.is_dir() and path.name != "pip"]
    sizes = {path.name: megabytes(path) for path in packages}
    found = sorted(sizes, key=lambda name: -sizes[name])[:5]
    return {name: round(sizes[name], 1) for name in found}


def run(command: list[str]) -> str:
    """Run a command and return its output; on failure show its errors."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dodona-install-") as folder:
        found = installed(Path(folder))
    checks = {
        f"at most {MOST_MB} MB": float(str(found["mb"])) <= MOST_MB,
        f"at most {MOST_DISTRIBUTIONS} distributions": (
            int(str(found["distributions"])) <= MOST_DISTRIBUTIONS
        ),
    }
    print(f"A default install takes {found['mb']} MB in {found['distributions']} distributions;")
    print(f"largest (MB): {found['largest']}\n")
    for check, met in checks.items():
        print(f"  {'met   ' if met else 'MISSED'}  {check}")
    if given.json:
        document = {**found, "met": checks}
        given.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
