"""What is skipped among the conformance tests does not go unseen in CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

MODULE = "import pytest\npytest.skip('no {0}', allow_module_level=True)\n"
SKIPS = {
    "test_call.py": "import pytest\ndef test_it():\n    pytest.skip('no {0}')\n",
    "test_mark.py": "import pytest\n@pytest.mark.skip('no {0}')\ndef test_it(): ...\n",
    "test_fixture.py": (
        "import pytest\n@pytest.fixture\ndef server():\n    pytest.skip('no {0}')\n"
        "def test_it(server): ...\n"
    ),
    "test_module.py": MODULE,
    "test_real_model.py": MODULE,
}


def run(folder: Path, *, complete: str) -> subprocess.CompletedProcess[str]:
    """Tests that skip in every way there is, under the hooks of this folder."""
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    for name, text in SKIPS.items():
        (folder / name).write_text(text.format(name))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--continue-on-collection-errors", "--rootdir=."],
        cwd=folder,
        env={
            **os.environ,
            "DODONA_TESTS_COMPLETE": complete,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_a_skip_fails_when_tests_must_be_complete(tmp_path: Path) -> None:
    """However a test skips, CI fails and says why; only the real model is an extra."""
    ended = run(tmp_path, complete="1")
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 1 skipped, 3 errors" in ended.stdout
    for name in SKIPS.keys() - {"test_real_model.py"}:
        assert f"no {name}\nWith DODONA_TESTS_COMPLETE=1 a skip is a failure." in ended.stdout


def test_a_skip_is_a_skip_elsewhere(tmp_path: Path) -> None:
    """Whoever has no server can still run the rest."""
    ended = run(tmp_path, complete="")
    assert (ended.returncode, "5 skipped" in ended.stdout) == (pytest.ExitCode.OK, True)
