"""Which files of a folder nobody wants to see: what `.gitignore` and `.dodonaignore` say.

The rules are git's: those of a deeper folder come before those above it, the last line that fits
decides, and nothing below an ignored folder comes back. `.git/info/exclude` is obeyed too; what a
user's own git config names is not. A repository is a stranger's: its patterns are bounded.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, cast

from pathspec import GitIgnoreSpec, Pattern
from pathspec.patterns.gitignore import GitIgnorePatternError

IGNORE_FILES: Final = (".gitignore", ".dodonaignore")  # the later come first
GIT_EXCLUDE_PATH: Final = (".git", "info", "exclude")
MAX_IGNORE_FILE_BYTES: Final = 256_000  # of such a file that are read
MAX_PATTERNS: Final = 2_000
MAX_STARS: Final = 3  # between two slashes: each multiplies the time that a long name takes

# What is made, fetched or kept by tools. A project that tracks such a folder can say so:
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

ReadFile = Callable[[tuple[str, ...]], bytes | None]  # one below a folder, if it is there

_log = logging.getLogger(__name__)
_GROUP_NAME = re.compile(r"\(\?P<\w+>")


@dataclass(frozen=True, slots=True)
class _IgnoreFile:
    """The patterns of one file. `any` fits whatever one of them does, and is quick."""

    prefix_length: int  # characters of a path that its folder takes
    spec: GitIgnoreSpec
    any_pattern: re.Pattern[str]

    def check(self, path: str) -> bool | None:
        """Ignored, not ignored after all, or nothing said."""
        inner = path[self.prefix_length :]
        if self.any_pattern.match(inner) is None:
            return None
        return self.spec.check_file(inner).include


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules that hold in a folder, the strongest first. `path` ends in `/`, or is empty."""

    specs: tuple[_IgnoreFile, ...] = ()
    path: str = ""

    @staticmethod
    def for_root(read: ReadFile) -> IgnoreRules:
        exclude = read(GIT_EXCLUDE_PATH)
        weak = [
            _parse_ignore_file(0, lines) for lines in (DEFAULT_PATTERNS.encode(), exclude or b"")
        ]
        return _add_folder_rules(tuple(spec for spec in reversed(weak) if spec), "", read)

    def for_subfolder(self, name: str, read: ReadFile) -> IgnoreRules:
        """The rules of a folder in this one."""
        return _add_folder_rules(self.specs, f"{self.path}{name}/", read)

    def is_ignored(self, name: str, *, is_folder: bool) -> bool:
        """Is something in this folder ignored? Hidden things always are."""
        if name.startswith("."):
            return True
        path = f"{self.path}{name}/" if is_folder else f"{self.path}{name}"
        said = (spec.check(path) for spec in self.specs)
        return next((answer for answer in said if answer is not None), False)


def _add_folder_rules(specs: tuple[_IgnoreFile, ...], path: str, read: ReadFile) -> IgnoreRules:
    """The rules from above and those of the folder itself."""
    for file in IGNORE_FILES:
        data = read((file,))
        if data and (spec := _parse_ignore_file(len(path), data)):
            specs = (spec, *specs)
    return IgnoreRules(specs, path)


def _parse_ignore_file(prefix_length: int, data: bytes) -> _IgnoreFile | None:
    lines = list(_usable_patterns(data.decode("utf-8-sig", "replace").splitlines()))
    if not lines:
        return None
    spec = GitIgnoreSpec.from_lines(lines)
    texts = [_regex_of(pattern) for pattern in spec.patterns]
    return _IgnoreFile(prefix_length, spec, re.compile("|".join(filter(None, texts))))


def _regex_of(pattern: Pattern) -> str:
    """Its expression, with groups that have no names: many are put together."""
    found = cast("re.Pattern[str] | None", getattr(pattern, "regex", None))
    return _GROUP_NAME.sub("(?:", found.pattern) if found else ""


def _usable_patterns(lines: Iterable[str]) -> Iterator[str]:
    """Those that can be matched in a bounded time, and that are patterns at all."""
    count = 0
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        count += 1
        stars = max(part.count("*") for part in line.replace("**", "*").split("/"))
        if count > MAX_PATTERNS or stars > MAX_STARS or line.count("**") > MAX_STARS:
            _log.warning("a pattern in a list of ignored files is too costly: %.80s", line)
            continue
        try:
            GitIgnoreSpec.from_lines([line])
        except (GitIgnorePatternError, re.error, ValueError):
            continue  # as git does
        yield line
