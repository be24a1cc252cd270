"""Answers of the embedded default model to questions about public projects.

    python bench/answers.py [--cache FOLDER] [--set development] [--show] [--json FILE]

The questions and the projects are in answers.toml. pip downloads the source distributions, in the
versions named there, into the cache folder. The `docs` of a project are the vault and its package
is the code, both as they are. Each question starts a new conversation and is answered by a run, as
`dodona ask` does it, with a store and the indexes of vault and code.

"first" is the share of questions whose first quotation contains the expected text. "shown" also
counts other quotations, and sections under "See also". "refused" is the share of the questions
without an answer for which nothing is quoted. "ms" is the median time of an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from dodona.agent.question import Question
from dodona.app.bootstrap import Runtime, open_runtime
from dodona.app.config.config import load_config
from dodona.app.models.credentials import Credentials
from dodona.core.domain.projects import LOCAL_USER
from dodona.net.redactor import Redactor

QUESTIONS = Path(__file__).with_name("answers.toml")
DEFAULT_CACHE = Path.home() / ".cache" / "dodona" / "answers"
TARGETS = {"first": 0.60, "shown": 0.82, "refused": 0.90}

CONFIG = """
[agent]
provider = "extractive"

[vault]
path = {vault}

[code]
paths = [{code}]

[log]
level = "warning"
"""

_CITATION = re.compile(r"`([^`]+)`(?:(?:, | \()lines? (\d+)(?:–(\d+))?)?")


@dataclass(frozen=True, slots=True)
class Citation:
    """What an answer quotes or names: the lines of a file, and the quoted text, if any."""

    path: str
    first: int
    last: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a question was answered. `rank` is that of the expected passage; 0 if not shown."""

    ask: str
    is_answerable: bool
    rank: int
    is_refused: bool
    ms: float


# -- projects ---------------------------------------------------------------------------------


def download(package: str, version: str, cache: Path) -> Path:
    """Return the unpacked source distribution; it is downloaded once."""
    folder = cache / f"{package}-{version}"
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory() as temporary:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        chosen = ["--no-deps", "--no-binary", ":all:", "--dest", temporary, f"{package}=={version}"]
        subprocess.run([*pip, *chosen], check=True)
        (archive,) = Path(temporary).iterdir()
        with tarfile.open(archive) as packed:
            packed.extractall(cache, filter="data")
    return folder


@asynccontextmanager
async def project(folder: Path, code: str) -> AsyncGenerator[Runtime]:
    """Open a Dodona with the notes and the code of a project, in a temporary home."""
    with tempfile.TemporaryDirectory() as home:
        file = Path(home) / "config.toml"
        paths = {"vault": folder / "docs", "code": folder / code}
        text = CONFIG.format(**{name: json.dumps(str(path)) for name, path in paths.items()})
        file.write_text(text, encoding="utf-8")
        environment = {**os.environ, "DODONA_HOME": home}
        config, redactor = load_config(environment, file), Redactor()
        credentials = Credentials(config, environment, redactor)
        async with open_runtime(config, credentials, redactor, serve=True) as runtime:
            yield runtime


# -- answers ----------------------------------------------------------------------------------


async def ask(runtime: Runtime, question: str) -> tuple[str, float]:
    """Return the answer in a new conversation, and its time in milliseconds."""
    started = perf_counter()
    request = Question(question=question, new=True).to_request(LOCAL_USER)
    oracle = runtime.api.oracle
    answer = await oracle.answer(LOCAL_USER, await oracle.submit(request))
    return answer.answer, (perf_counter() - started) * 1000


def citations(answer: str) -> Iterator[Citation]:
    """Yield the quotations of an answer with their sources, then the sections it only names."""
    quoted: list[str] = []
    named: list[Citation] = []
    for line in answer.splitlines():
        if line.startswith(">"):
            quoted.append(line[1:].removeprefix(" "))
        elif line.startswith("— ") and quoted:
            yield parse_citation(line, plain("\n".join(quoted)))
            quoted = []
        elif line.startswith("- "):
            named.append(parse_citation(line))
    yield from named


def parse_citation(line: str, text: str = "") -> Citation:
    """Return the last path of a line, with its lines."""
    matches = _CITATION.findall(line)
    path, first, last = matches[-1] if matches else ("", "", "")
    return Citation(path, int(first or 0), int(last or first or 0), text)


def plain(text: str) -> str:
    """Return a text without line breaks and without the escapes of quotations."""
    return " ".join(text.replace("&lt;", "<").replace("!\\[", "![").split())


@dataclass(frozen=True, slots=True)
class Expected:
    """A passage of a file that answers a question; `line` is where it starts."""

    path: str
    text: str
    line: int

    @classmethod
    def find(cls, passage: dict[str, str], folder: Path, roots: list[str]) -> Expected:
        """Find a passage in its file. The path is relative to the vault or the code folder."""
        file, words = passage["file"], passage["text"].split()
        pattern = r"\s+".join(map(re.escape, words))
        content = (folder / file).read_text(encoding="utf-8")
        match = re.search(pattern, content)
        assert match, f"{file} does not contain: {passage['text']}"
        root = next(root for root in roots if file.startswith(f"{root}/"))
        line = content.count("\n", 0, match.start()) + 1
        return cls(file.removeprefix(f"{root}/"), " ".join(words), line)

    def is_in(self, citation: Citation) -> bool:
        """Whether a quotation contains the passage, or a named section has its line."""
        if citation.path != self.path:
            return False
        return self.text in citation.text or (
            not citation.text and citation.first <= self.line <= citation.last
        )


# -- the benchmark ----------------------------------------------------------------------------


async def bench(corpus: dict[str, Any], cache: Path, *, show: bool) -> list[Outcome]:
    """Ask all questions about one project."""
    folder = download(corpus["package"], corpus["version"], cache)
    outcomes: list[Outcome] = []
    async with project(folder, corpus["code"]) as runtime:
        await ask(runtime, "Wait for the indexes of notes and code.")
        for question in corpus["question"]:
            passages = [
                Expected.find(each, folder, ["docs", corpus["code"]])
                for each in question.get("passages", ())
            ]
            text, ms = await ask(runtime, question["ask"])
            cited = list(citations(text))
            ranks = [
                rank
                for rank, citation in enumerate(cited, 1)
                if any(each.is_in(citation) for each in passages)
            ]
            is_refused = not any(each.text for each in cited)
            rank = ranks[0] if ranks else 0
            outcomes.append(Outcome(question["ask"], bool(passages), rank, is_refused, round(ms)))
            if show and (rank != 1 if passages else not is_refused):
                print(f"\n== {question['ask']}  (rank {rank})\n{text}")
    return outcomes


def figures(outcomes: list[Outcome]) -> dict[str, float]:
    """Return the shares and the median time."""
    answerable = [each for each in outcomes if each.is_answerable]
    others = [each for each in outcomes if not each.is_answerable]
    return {
        "questions": len(answerable),
        "first": sum(each.rank == 1 for each in answerable) / len(answerable),
        "shown": sum(each.rank > 0 for each in answerable) / len(answerable),
        "unanswerable": len(others),
        "refused": sum(each.is_refused for each in others) / len(others),
        "ms": statistics.median(each.ms for each in outcomes),
    }


def table(rows: dict[str, dict[str, float]]) -> str:
    columns = next(iter(rows.values()))
    lines = [f"{'':24}" + "".join(f"{column:>14}" for column in columns)]
    for name, row in rows.items():
        cells = [f"{v:.0%}" if column in TARGETS else f"{v:,.0f}" for column, v in row.items()]
        lines.append(f"{name:24}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines)


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="for the projects")
    options.add_argument("--set", choices=("development", "held-out"), help="only these corpora")
    options.add_argument("--show", action="store_true", help="print the answers that are not right")
    options.add_argument("--json", type=Path, help="also write the figures to this file")
    given = options.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    corpora = tomllib.loads(QUESTIONS.read_text(encoding="utf-8"))["corpus"]
    by_set: dict[str, list[Outcome]] = {}
    rows: dict[str, dict[str, float]] = {}
    for corpus in corpora:
        if given.set in (None, corpus["set"]):
            outcomes = asyncio.run(bench(corpus, given.cache, show=given.show))
            by_set.setdefault(corpus["set"], []).extend(outcomes)
            rows[corpus["package"]] = figures(outcomes)
    rows |= {name: figures(outcomes) for name, outcomes in by_set.items()}
    print(table(rows))
    met = {
        f"{name}: {figure} is at least {target:.0%}": rows[name][figure] >= target
        for name in by_set
        for figure, target in TARGETS.items()
    }
    print()
    for check, is_met in met.items():
        print(f"  {'met   ' if is_met else 'MISSED'}  {check}")
    answers = {name: [asdict(each) for each in outcomes] for name, outcomes in by_set.items()}
    document = {"figures": rows, "met": met, "answers": answers}
    if given.json:
        given.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
