"""Which files of a folder are ignored, by `.gitignore` and `.dodonaignore`.

The rules are git's: a deeper folder overrides those above it, the last matching line decides, and
nothing below an ignored folder is included. `.git/info/exclude` applies too; the user's own git
config does not. A repository is untrusted, so its patterns are bounded.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

from pathspec import GitIgnoreSpec, Pattern
from pathspec.patterns.gitignore import GitIgnorePatternError

IGNORE_FILES: Final = (".gitignore", ".dodonaignore")  # the later one has precedence
GIT_EXCLUDE_PATH: Final = (".git", "info", "exclude")
MAX_IGNORE_FILE_BYTES: Final = 256_000  # the rest of a larger file is not read
MAX_PATTERNS: Final = 2_000
MAX_STARS: Final = 3  # per path segment: each multiplies the matching time of a long name

# Files that tools build, download or cache. A project that tracks such a folder can include it with
# `!build/` in a `.dodonaignore`.
DEFAULT_PATTERNS: Final = """
node_modules/
bower_components/
__pycache__/
site-packages/
venv/
dist/
build/
target/
vendor/bundle/
coverage/
htmlcov/
*.egg-info/
*.min.js
*.min.css
*.map
"""

ReadFile = Callable[[tuple[str, ...]], bytes | None]  # reads a file below a folder, if it exists

_log = logging.getLogger(__name__)
_GROUP_NAME = re.compile(r"\(\?P<\w+>")


@dataclass(frozen=True, slots=True)
class _IgnoreFile:
    """The patterns of one ignore file. `any_pattern` is a fast pre-check for all of them."""

    prefix_length: int  # length of the path of its folder
    spec: GitIgnoreSpec
    any_pattern: re.Pattern[str]

    def check(self, path: str) -> bool | None:
        """Return whether the path is ignored; None if no pattern matches."""
        inner = path[self.prefix_length :]
        if self.any_pattern.match(inner) is None:
            return None
        return self.spec.check_file(inner).include


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules of a folder, strongest first. `path` ends in `/`, or is empty."""

    specs: tuple[_IgnoreFile, ...] = ()
    path: str = ""

    @staticmethod
    def for_root(read: ReadFile) -> IgnoreRules:
        """Return the rules of a root folder."""
        exclude = read(GIT_EXCLUDE_PATH)
        base = [
            _parse_ignore_file(0, lines) for lines in (DEFAULT_PATTERNS.encode(), exclude or b"")
        ]
        return _add_folder_rules(tuple(spec for spec in reversed(base) if spec), "", read)

    def for_subfolder(self, name: str, read: ReadFile) -> IgnoreRules:
        """Return the rules of a folder in this one."""
        return _add_folder_rules(self.specs, f"{self.path}{name}/", read)

    def is_ignored(self, name: str, *, is_folder: bool) -> bool:
        """Whether an entry of this folder is ignored. Hidden entries always are."""
        if name.startswith("."):
            return True
        path = f"{self.path}{name}/" if is_folder else f"{self.path}{name}"
        results = (spec.check(path) for spec in self.specs)
        return next((result for result in results if result is not None), False)


def _add_folder_rules(specs: tuple[_IgnoreFile, ...], path: str, read: ReadFile) -> IgnoreRules:
    """Add the rules of the folder itself to those inherited."""
    for file in IGNORE_FILES:
        data = read((file,))
        if data and (spec := _parse_ignore_file(len(path), data)):
            specs = (spec, *specs)
    return IgnoreRules(specs, path)


@lru_cache(maxsize=256)
def _parse_ignore_file(prefix_length: int, data: bytes) -> _IgnoreFile | None:
    lines = list(_usable_patterns(data.decode("utf-8-sig", "replace").splitlines()))
    if not lines:
        return None
    spec = GitIgnoreSpec.from_lines(lines)
    texts = [_regex_of(pattern) for pattern in spec.patterns]
    return _IgnoreFile(prefix_length, spec, re.compile("|".join(filter(None, texts))))


def _regex_of(pattern: Pattern) -> str:
    """Return the regex of a pattern without group names, so that many can be joined."""
    regex = cast("re.Pattern[str] | None", getattr(pattern, "regex", None))
    return _GROUP_NAME.sub("(?:", regex.pattern) if regex else ""


def _usable_patterns(lines: Iterable[str]) -> Iterator[str]:
    """Yield the valid patterns that can be matched in bounded time."""
    count = 0
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        count += 1
        stars = max(part.count("*") for part in line.replace("**", "*").split("/"))
        if count > MAX_PATTERNS or stars > MAX_STARS or line.count("**") > MAX_STARS:
            _log.warning("skipping an ignore pattern that is too costly: %.80s", line)
            continue
        try:
            GitIgnoreSpec.from_lines([line])
        except (GitIgnorePatternError, re.error, ValueError):
            continue  # invalid; git skips it too
        yield line
