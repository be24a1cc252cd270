"""With no key and no model server: the sample vault is answered from, with citations."""

from __future__ import annotations

from pathlib import Path

from tests.system.client import Client, of_type, text_of, types

SAMPLE = Path(__file__).parents[2] / "examples" / "vault"


async def test_the_sample_vault(own: Client) -> None:
    """It uses the tools as any model does, quotes a note and names it, and makes nothing up."""
    home = own.up.home
    home.config.write_text(
        f'[agent]\nprovider = "extractive"\n[vault]\npath = "{SAMPLE}"\n'
        f'[store]\nurl = "{home.store}"\n'
    )
    await own.up.begin()
    own.tag = ""  # it would be looked for in the notes
    chunks = await own.streamed("How do budgets work?")
    assert types(chunks)[-1] == "done"
    assert of_type(chunks, "tool_call")
    sources = {each["path"] for each in of_type(chunks, "source")}
    assert any(path in text_of(chunks) for path in sources)
    answer = await own.ask("Who won the chess tournament of Reykjavik in 1972?", new=True)
    assert answer["sources"] == []
