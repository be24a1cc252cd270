"""The arguments of `open`, and the config that they result in."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, TypedDict

from dodona.app.config.arguments import Arguments, apply_arguments
from dodona.app.config.config import MAX_CONFIG_BYTES, Config, parse_config
from dodona.app.config.environment import apply_overrides
from dodona.app.extensions.loading import ExtensionLoader
from dodona.core.ports.model import Model, ModelProvider
from dodona.documents import Document, is_table, read_document

EMBEDDED_PROVIDER: Final = "embedded"  # the provider of a model that is an object

AnyPath: TypeAlias = str | Path


class OpenOptions(TypedDict, total=False):
    """The arguments of `open` and `open_sync`, all optional."""

    home: AnyPath | None
    vault: AnyPath | None
    code: AnyPath | Sequence[AnyPath] | None
    model: str | Model | None
    tools: Sequence[object]
    settings: Mapping[str, Any] | None
    serve: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOptions:
    """The options of an app. `environment` is by default that of the process.

    With `every_agent`, the model is also that of agents which name another one.
    """

    config: AnyPath | None = None
    home: AnyPath | None = None
    vault: AnyPath | None = None
    code: AnyPath | Sequence[AnyPath] | None = None
    model: str | Model | None = None
    tools: Sequence[object] = ()
    settings: Mapping[str, Any] | None = None
    serve: bool = False
    environment: Mapping[str, str] | None = None
    every_agent: bool = False

    def find_environment(self) -> Mapping[str, str]:
        """Return the environment, with DODONA_HOME as the options name it."""
        environment = os.environ if self.environment is None else self.environment
        return environment if self.home is None else {**environment, "DODONA_HOME": str(self.home)}

    def load_config(self) -> Config:
        """Read the config file, if one is named, and apply environment and arguments. Blocks."""
        environment = self.find_environment()
        document = self._read_file(environment)
        arguments: dict[str, Mapping[str, Any]] = {
            "open()": {"log": None},  # the program configures logging
            "open(vault=…)": {"vault": {"path": self.vault}} if self.vault is not None else {},
            "open(code=…)": {"code": {"paths": self._code_paths()}}
            if self.code is not None
            else {},
            "open(settings=…)": self.settings or {},
        }
        # The settings come last: they may add a key or a URL to the model.
        model = {"open(model=…)": self._model_settings(document, environment, arguments)}
        return parse_config(
            document, environment, has_extensions=True, arguments={**model, **arguments}
        )

    def build_loader(self) -> ExtensionLoader:
        """Return a loader of the extensions among the options."""
        model = self.model
        if model is None or isinstance(model, str):
            return ExtensionLoader(objects=self.tools)
        provider = ModelProvider(
            name=EMBEDDED_PROVIDER, build=lambda _: model, default_model=model.name
        )
        return ExtensionLoader(objects=[*self.tools, provider])

    def _read_file(self, environment: Mapping[str, str]) -> Document | None:
        file = self.config or environment.get("DODONA_CONFIG")
        if not file:
            return None
        path = Path(file).expanduser()
        return read_document(path, label="the config file", max_bytes=MAX_CONFIG_BYTES)

    def _code_paths(self) -> list[AnyPath]:
        code = self.code or ()
        return [code] if isinstance(code, str | Path) else [*code]

    def _model_settings(
        self, document: Document | None, environment: Mapping[str, str], others: Arguments
    ) -> Mapping[str, Any]:
        """Return the settings that make agents use the model."""
        if self.model is None:
            return {}
        table = deepcopy(document.table) if document else {}
        for _ in (*apply_overrides(table, environment), *apply_arguments(table, others)):
            pass
        agents = table.get("agents")
        return {
            "agent": self._agent_settings(table.get("agent")),
            "agents": {
                name: self._agent_settings(section)
                for name, section in (agents.items() if is_table(agents) else ())
                if self.every_agent
                or (is_table(section) and not {"provider", "model"} & section.keys())
            },
        }

    def _agent_settings(self, section: Any) -> Mapping[str, Any]:
        return dict(self._iter_agent_settings(section if is_table(section) else {}))

    def _iter_agent_settings(self, section: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        if isinstance(self.model, str):
            provider, _, name = self.model.partition("/")
        else:
            assert self.model is not None
            provider, name = EMBEDDED_PROVIDER, self.model.name
            yield "fallback", None
        yield "provider", provider
        yield "model", name or None
        if section.get("provider") != provider:
            # They belong to another provider, which alone may receive the key.
            yield "base_url", None
            yield "api_key", None
