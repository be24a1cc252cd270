"""A model may ask for any path: it reaches the vault, and nothing around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.client import Client, of_type, text_of
from tests.system.wire_model import Call, Script, calls, says

HIDDEN = "what nobody may read"

HOSTILE = {
    "up": "../secret.md",
    "up-and-down": "travel/../../secret.md",
    "absolute": "{outside}/secret.md",
    "home": "~/secret.md",
    "linked-file": "linked.md",
    "linked-folder": "linked/secret.md",
    "nul": "oak.md\x00/../../secret.md",
    "newline": "oak.md\n../secret.md",
    "backslash": "..\\secret.md",
    "encoded": "%2e%2e/secret.md",
    "huge": "a/" * 1500 + "secret.md",
    "long-name": "a" * 5000 + ".md",
    "hidden": ".dodona/prompts/oracle.md",
    "scheme": "file:///etc/passwd",
    "system": "/etc/passwd",
    "process": "/proc/self/environ",
    "empty": "",
    "no-note": "oak",
    "device": "/dev/zero",
}

# An odd name for a folder, and no way out: it may be made.
UNWRITABLE = {name: path for name, path in HOSTILE.items() if name != "encoded"}


@pytest.fixture
def outside(vault: Path) -> Path:
    """A folder beside the vault, and links in the vault that lead there."""
    (vault.parent / "secret.md").write_text(f"# Secret\n\n{HIDDEN}\n")
    (vault / "linked.md").symlink_to(vault.parent / "secret.md")
    (vault / "linked").symlink_to(vault.parent)
    return vault.parent


@pytest.mark.parametrize("path", HOSTILE.values(), ids=HOSTILE)
async def test_reading(client: Client, script: Script, outside: Path, path: str) -> None:
    """The call fails with words for the model; the run goes on, and the secret stays one."""
    path = path.replace("{outside}", str(outside))
    script.will(calls(Call("vault_read", {"path": path})), says("I cannot."))
    chunks = await client.streamed("Read it.")
    (result,) = of_type(chunks, "tool_result")
    assert result["status"] == "error"
    assert len(result["result"]) < 2000
    assert text_of(chunks) == "I cannot."
    assert script.asked[1].results[-1].startswith("Error: ")
    assert HIDDEN not in str(chunks)
    assert not any(HIDDEN.encode() in asked.body for asked in script.asked)
    assert "root:" not in str(chunks)


@pytest.mark.parametrize("path", UNWRITABLE.values(), ids=UNWRITABLE)
async def test_writing(client: Client, script: Script, outside: Path, path: str) -> None:
    """Nothing is written outside the vault, nor through a link in it."""
    path = path.replace("{outside}", str(outside))
    before = files(outside)
    script.will(calls(Call("vault_write", {"path": path, "content": "mine"})), says("I cannot."))
    chunks = await client.streamed("Write it.")
    (result,) = of_type(chunks, "tool_result")
    assert result["status"] == "error"
    assert text_of(chunks) == "I cannot."
    assert (outside / "secret.md").read_text() == f"# Secret\n\n{HIDDEN}\n"
    assert files(outside) == before


def files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if not each.is_symlink())


async def test_searching_and_listing(client: Client, script: Script, outside: Path) -> None:
    """What links lead to is neither found nor listed."""
    script.will(
        calls(
            Call("vault_search", {"query": "nobody may read"}),
            Call("vault_list"),
            Call("vault_list", {"folder": "linked"}),
            Call("vault_list", {"folder": ".."}),
        ),
        says("Nothing."),
    )
    chunks = await client.streamed("Find it.")
    results = script.asked[1].results
    assert [each.startswith("Error: ") for each in results] == [False, False, True, True]
    assert HIDDEN not in str(chunks)
    assert "linked" not in results[1]


async def test_a_project_chosen_by_the_model(client: Client, script: Script) -> None:
    """A call cannot name another project: the parameter is ours, and refused from a model."""
    script.will(
        calls(Call("vault_read", {"path": "oak.md", "project_id": "default"})), says("I see.")
    )
    chunks = await client.streamed("Read it elsewhere.")
    (result,) = of_type(chunks, "tool_result")
    assert result["status"] == "error"
    assert "project_id" in result["result"]
