"""Conformance tests need servers that may not be installed: here, and only here, tests may skip.

With DODONA_TESTS_COMPLETE=1, as in CI, a skip is a failure, so that nothing is left out unseen.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TypeVar

import pytest

COMPLETE = os.environ.get("DODONA_TESTS_COMPLETE") == "1"
MAY_SKIP = frozenset({"test_real_model.py"})  # its packages are an extra of 130 MB

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _complete(item, (yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module can skip itself while it is imported."""
    return _complete(collector, (yield))


def _complete(node: pytest.Item | pytest.Collector, report: Report) -> Report:
    if COMPLETE and report.skipped and node.path.name not in MAY_SKIP:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason}\nWith DODONA_TESTS_COMPLETE=1 a skip is a failure."
    return report
