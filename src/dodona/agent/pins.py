"""Pins: what a run begins with and keeps, also across a crash: tree, prompts, tools, settings."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec

from dodona.agent.delegating import DELEGATION
from dodona.agent.means import AGENT, Means
from dodona.agent.prompting import Prompts, render
from dodona.agent.settings import ModelSettings
from dodona.core.conversation import Brief
from dodona.core.messages import SystemText, ToolSpec
from dodona.core.tools import Category
from dodona.lisp import to_text
from dodona.trees import Registry, Tree, load

REMEMBERED: Final = 128
FRESH_SECONDS: Final = 1.0  # how long the texts of prompts are not looked at again
LIBRARIAN: Final = "librarian"

TreeNow = Callable[[], Tree]


class _Tool(msgspec.Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]


class _Kept(msgspec.Struct, frozen=True):
    tree: str
    prompts: dict[str, str]
    tools: list[_Tool]
    settings: dict[str, Any]
    model: str


_kept = msgspec.json.Decoder(_Kept)


@dataclass(frozen=True, slots=True, eq=False)
class Pins:
    """`body` is what is kept of them; `fixed_tokens` is what prompt and tools come to."""

    tree: Tree
    system: SystemText
    librarian: str  # its prompt, as a template
    tools: tuple[ToolSpec, ...]
    settings: ModelSettings
    model: str  # "" is the configured one
    body: bytes
    digest: bytes  # of the body
    names: frozenset[str]  # of the tools
    fixed_tokens: int


class Pinning:
    """Makes pins of how things are now, or of what an earlier attempt kept."""

    def __init__(
        self,
        means: Means,
        *,
        tree: TreeNow,
        registry: Registry,
        prompts: Prompts,
        prompt_folder: Callable[[Brief], Path | None],
    ) -> None:
        self._means = means
        self._tree = tree
        self._registry = registry
        self._prompts = prompts
        self._folder = prompt_folder
        self._made: OrderedDict[Any, Pins] = OrderedDict()
        self._filtered: dict[Any, tuple[ToolSpec, ...]] = {}
        self._texts: dict[Path | None, tuple[float, tuple[str, str]]] = {}

    async def pins(self, brief: Brief, wishes: Mapping[str, Any]) -> Pins:
        if brief.pins is not None:
            return self._revived(brief)
        tree = self._tree()
        prompt, librarian = await self._prompt_texts(self._folder(brief))
        tools = self._tools(wishes.get("sources"))
        settings = brief.settings
        key = (
            *(id(tree), prompt, librarian, id(tools), tuple(settings.items())),
            *(wishes.get("model"), brief.project.id),
        )
        found = self._made.get(key)
        if found is None:
            chosen = ModelSettings.read(settings)
            model = wishes.get("model") or chosen.oracle_model
            kept = _Kept(
                tree=_text(tree),
                prompts={AGENT: prompt, LIBRARIAN: librarian},
                tools=[_Tool(t.name, t.description, dict(t.parameters)) for t in tools],
                settings=chosen.as_dict(),
                model=model,
            )
            found = self._pins(kept, tree, tools, brief.project.id)
            self._remember(key, found)
        return found

    async def _prompt_texts(self, folder: Path | None) -> tuple[str, str]:
        """The two prompts as they are now, or were a moment ago; files are read in a thread."""
        now = monotonic()
        known = self._texts.get(folder)
        if known is not None and now - known[0] < FRESH_SECONDS:
            return known[1]
        texts = await asyncio.to_thread(self._read_prompts, folder)
        if len(self._texts) >= REMEMBERED:
            self._texts.clear()
        self._texts[folder] = (now, texts)
        return texts

    def _read_prompts(self, folder: Path | None) -> tuple[str, str]:
        return self._prompts.text(AGENT, folder), self._prompts.text(LIBRARIAN, folder)

    def _revived(self, brief: Brief) -> Pins:
        assert brief.pins is not None
        kept = _kept.decode(brief.pins)
        now = self._tree()
        tree = now if _text(now) == kept.tree else load(kept.tree, registry=self._registry)
        tools = tuple(ToolSpec(t.name, t.description, t.parameters) for t in kept.tools)
        return self._pins(kept, tree, tools, brief.project.id)

    def _pins(self, kept: _Kept, tree: Tree, tools: tuple[ToolSpec, ...], project_id: str) -> Pins:
        names = [tool.name for tool in tools]
        values = {"project_id": project_id, "tools": names}
        text = render(kept.prompts[AGENT], values, file=f"{AGENT}.md")
        system = SystemText(text)
        schemas = sum(len(msgspec.json.encode(tool.parameters)) // 3 for tool in kept.tools)
        said = "".join(tool.name + tool.description for tool in tools)
        counted = self._means.counter.count(text + said, kept.model)
        body = msgspec.json.encode(kept)
        return Pins(
            tree=tree,
            system=system,
            librarian=kept.prompts[LIBRARIAN],
            tools=tools,
            settings=ModelSettings.read(kept.settings),
            model=kept.model,
            body=body,
            digest=blake2b(body, digest_size=16).digest(),
            names=frozenset(names),
            fixed_tokens=counted + schemas,
        )

    def _tools(self, sources: list[str] | None) -> tuple[ToolSpec, ...]:
        """Those that are offered, of the kinds that are wished for; always the same objects."""
        offered = self._means.toolbox.offered(AGENT)
        key = (id(offered), None if sources is None else tuple(sorted(sources)))
        if key not in self._filtered:
            wanted = [t for t in offered if sources is None or self._is_of(t.name, sources)]
            self._filtered[key] = (*wanted, DELEGATION)
        return self._filtered[key]

    def _is_of(self, name: str, sources: list[str]) -> bool:
        tool = self._means.toolbox.find(name)
        assert tool is not None
        return tool.category is Category.META or tool.category.value in sources

    def _remember(self, key: Any, pins: Pins) -> None:
        self._made[key] = pins
        if len(self._made) > REMEMBERED:
            self._made.popitem(last=False)


def _text(tree: Tree) -> str:
    """The tree and those it uses, as one text that loads."""
    return "\n\n".join(to_text(each.form) for each in (tree, *tree.uses()))
