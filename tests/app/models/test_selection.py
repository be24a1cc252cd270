"""Which model answers: the config's word, a key, a server on this machine, or extractive."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from dodona.app.config.config import load_config
from dodona.app.models.credentials import Credentials
from dodona.app.models.probe import ProbeTarget
from dodona.app.models.selection import ModelChoice, ModelSelector
from dodona.core.errors import ConfigError
from dodona.models.providers import PROVIDERS
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor

Serve = Callable[[bytes | None], Awaitable[str]]
KEY = "a-key-of-some-length"
LONG, SHORT = 20.0, 0.05

T = TypeVar("T")


class Machine:
    """A machine with this environment, this config file, and servers at these places."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: dict[str, str] = {}
        self.spots: Sequence[ProbeTarget] = ()
        self.redactor = Redactor()
        self.patience = LONG

    def configure(self, text: str) -> None:
        (self.folder / "dodona.toml").write_text(text, encoding="utf-8")

    def write_key(self, provider: str, *, mode: int = 0o600) -> Path:
        file = self.folder / "credentials" / provider
        file.parent.mkdir(exist_ok=True)
        file.write_text(KEY, encoding="utf-8")
        file.chmod(mode)
        return file

    async def choose(self, name: str = "") -> ModelChoice:
        return await self._select(lambda selector: selector.choose(name))

    async def choose_model(self, name: str) -> ModelChoice:
        return await self._select(lambda selector: selector.choose_model(name))

    async def choose_override(self, name: str) -> ModelChoice | None:
        return await self._select(lambda selector: selector.choose_override(name))

    async def _select(self, choose: Callable[[ModelSelector], Awaitable[T]]) -> T:
        environment = {**self.environment, "DODONA_HOME": str(self.folder)}
        file = self.folder / "dodona.toml"
        given = file if file.exists() else Path(os.devnull)
        config = await asyncio.to_thread(load_config, environment, given)
        credentials = Credentials(config, environment, self.redactor)
        async with HttpPool() as http:
            chooser = ModelSelector(
                config, credentials, http=http, targets=self.spots, timeout=self.patience
            )
            return await choose(chooser)

    async def told(self, name: str = "") -> str:
        with pytest.raises(ConfigError) as caught:
            await self.choose(name)
        return str(caught.value).replace(str(self.folder), "FOLDER")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def summary(choice: ModelChoice) -> tuple[str, str, str]:
    return choice.provider, choice.model, choice.reason


# -- without a word in the config ------------------------------------------------------------


async def test_with_nothing_it_is_extractive(machine: Machine, serve: Serve) -> None:
    """And what was looked for is told, in the order in which it was."""
    machine.spots = [ProbeTarget("Ollama", "ollama", await serve(b"SSH-2.0\r\n"))]
    choice = await machine.choose()
    assert summary(choice) == (
        "extractive",
        "extractive",
        "there is no API key and no local model server",
    )
    assert choice.rejected == (
        "ANTHROPIC_API_KEY is not set",
        "OPENAI_API_KEY is not set",
        "OPENROUTER_API_KEY is not set",
        "GEMINI_API_KEY or GOOGLE_API_KEY is not set",
        "DEEPSEEK_API_KEY is not set",
        f"there is no API key in {machine.folder / 'credentials'}",
        f"Ollama at {machine.spots[0].base_url}: unexpected response",
    )


@pytest.mark.parametrize("provider", [name for name, row in PROVIDERS.items() if row.key_env])
async def test_a_key_in_the_environment_chooses_its_provider(
    machine: Machine, provider: str
) -> None:
    """With that provider's model, and the key hidden at once; no server is asked."""
    row = PROVIDERS[provider]
    machine.environment[row.key_env[-1]] = KEY
    machine.spots = [ProbeTarget("nowhere", "ollama", "http://never.asked.invalid/v1")]
    choice = await machine.choose()
    assert summary(choice) == (provider, row.default_model, f"{row.key_env[-1]} is set")
    assert choice.key
    assert choice.key.reveal() == KEY
    assert KEY not in repr(choice)
    assert not any("nowhere" in line for line in choice.rejected)
    assert machine.redactor.redact(KEY) == f"[secret {row.key_env[-1]}]"


async def test_the_order_of_keys(machine: Machine) -> None:
    """Variables come before files; among each, the order of the table."""
    file = machine.write_key("anthropic")
    machine.write_key("openai")
    assert (await machine.choose()).reason == f"there is a key in {file}"
    machine.environment |= {"DEEPSEEK_API_KEY": KEY, "OPENAI_API_KEY": KEY}
    assert summary(await machine.choose())[::2] == ("openai", "OPENAI_API_KEY is set")


async def test_a_model_of_one_s_own_is_taken(machine: Machine) -> None:
    """From whichever provider is chosen."""
    machine.environment |= {"OPENAI_API_KEY": KEY, "DODONA_AGENT__MODEL": "gpt-mine"}
    assert summary(await machine.choose())[:2] == ("openai", "gpt-mine")


async def test_what_is_no_key_is_passed_over(machine: Machine) -> None:
    """People set OPENAI_API_KEY to anything for servers of their own; that is told."""
    machine.environment["OPENAI_API_KEY"] = "x"
    choice = await machine.choose()
    assert choice.provider == "extractive"
    assert choice.rejected[1] == (
        "OPENAI_API_KEY is too short for a secret. "
        "A secret needs at least 8 characters, so that it can be redacted in logs."
    )


async def test_a_key_file_that_others_may_read_is_no_choice(machine: Machine) -> None:
    """Passing over it would leave the key lying there."""
    machine.write_key("gemini", mode=0o644)
    assert "chmod 600 FOLDER/credentials/gemini" in await machine.told()


async def test_a_server_on_this_machine(
    machine: Machine, serve: Serve, listing: Callable[..., bytes], respond: Callable[..., bytes]
) -> None:
    """The first that has a model, in the order of places; its first model."""
    machine.spots = [
        ProbeTarget("Ollama", "ollama", await serve(respond(b'{"data": null}'))),
        ProbeTarget("LM Studio", "openai-compatible", await serve(listing("qwen", "phi"))),
        ProbeTarget("vLLM", "openai-compatible", await serve(listing("llama"))),
    ]
    studio = machine.spots[1].base_url
    choice = await machine.choose()
    assert summary(choice) == (
        "openai-compatible",
        "qwen",
        f"LM Studio at {studio} has 2 models",
    )
    assert choice.base_url == studio
    assert choice.key is None
    assert choice.rejected[-1] == f"Ollama at {machine.spots[0].base_url}: has no models"


async def test_a_server_that_has_the_model(
    machine: Machine, serve: Serve, listing: Callable[..., bytes]
) -> None:
    """A model that the config names decides which; if none has it, there is none."""
    machine.spots = [
        ProbeTarget("Ollama", "ollama", await serve(listing("qwen"))),
        ProbeTarget("vLLM", "openai-compatible", await serve(listing("phi", "llama"))),
    ]
    machine.environment["DODONA_AGENT__MODEL"] = "llama"
    assert summary(await machine.choose())[:2] == ("openai-compatible", "llama")
    machine.environment["DODONA_AGENT__MODEL"] = "gemma"
    assert summary(await machine.choose()) == (
        "extractive",
        "extractive",
        "there is no API key and no local model server with gemma",
    )


async def test_a_server_that_hangs_delays_nothing(machine: Machine, serve: Serve) -> None:
    """It is passed over after its time."""
    machine.spots = [ProbeTarget("Ollama", "ollama", await serve(None))]
    machine.patience = SHORT
    choice = await machine.choose()
    assert choice.provider == "extractive"
    assert choice.rejected[-1].endswith("timed out")


# -- as the config says ----------------------------------------------------------------------


async def test_the_config_decides(machine: Machine) -> None:
    """Whatever keys there are; its reason is the line that says so."""
    machine.environment |= {"ANTHROPIC_API_KEY": KEY, "DEEPSEEK_API_KEY": f"{KEY}-of-deepseek"}
    machine.configure('[agent]\nprovider = "deepseek"\n[agents.quoter]\nprovider = "extractive"\n')
    choice = await machine.choose()
    assert summary(choice) == (
        "deepseek",
        PROVIDERS["deepseek"].default_model,
        f"it is set in {machine.folder / 'dodona.toml'}:2",
    )
    assert choice.key
    assert choice.key.source == "DEEPSEEK_API_KEY"
    assert (await machine.choose("quoter")).provider == "extractive"
    machine.environment["DODONA_AGENT__PROVIDER"] = "anthropic"
    assert (await machine.choose()).reason == "it is set in DODONA_AGENT__PROVIDER"


async def test_the_config_s_own_key_comes_first(machine: Machine) -> None:
    """Before the provider's variable and its file."""
    machine.environment |= {"OPENAI_API_KEY": KEY, "WORK_KEY": f"{KEY}-of-work"}
    machine.configure('[agent]\nprovider = "openai"\napi_key = "env:WORK_KEY"\n')
    choice = await machine.choose()
    assert choice.key
    assert choice.key.reveal() == f"{KEY}-of-work"


async def test_a_provider_without_its_key_is_told(machine: Machine) -> None:
    """With both ways to give it one."""
    machine.configure('[agent]\nprovider = "openai"\n')
    assert await machine.told() == (
        "FOLDER/dodona.toml:2: there is no API key for openai. "
        "Set OPENAI_API_KEY, or write the key to FOLDER/credentials/openai (chmod 600)."
    )


async def test_a_key_goes_only_to_its_provider(machine: Machine) -> None:
    """To another address it is sent only when the config names the key."""
    machine.environment["OPENAI_API_KEY"] = KEY
    machine.write_key("openai")
    address = 'base_url = "https://elsewhere.example/v1"\n'
    machine.configure(f'[agent]\nprovider = "openai"\n{address}')
    choice = await machine.choose()
    assert (choice.base_url, choice.key) == ("https://elsewhere.example/v1", None)
    machine.configure(f'[agent]\nprovider = "openai"\napi_key = "env:OPENAI_API_KEY"\n{address}')
    assert (await machine.choose()).key


async def test_fallbacks_are_chosen_too(machine: Machine) -> None:
    """Of any depth, each with its own key and times."""
    machine.environment |= {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": f"{KEY}-of-openai"}
    machine.configure(
        '[agent]\ntimeouts.gap = 5\n[agent.fallback]\nprovider = "openai"\nmodel = "small"\n'
        '[agent.fallback.fallback]\nprovider = "extractive"\n'
    )
    chain = list((await machine.choose()).chain())
    assert [(link.provider, link.timeouts.gap) for link in chain] == [
        ("anthropic", 5.0),
        ("openai", 90.0),
        ("extractive", 90.0),
    ]


async def test_a_script_is_beside_the_config(machine: Machine) -> None:
    """Its path is relative to the file that names it."""
    machine.configure('[agent]\nprovider = "scripted"\nmodel = "answers.toml"\n')
    assert (await machine.choose()).model == str(machine.folder / "answers.toml")


async def test_a_server_is_asked_what_it_has(
    machine: Machine, serve: Serve, listing: Callable[..., bytes]
) -> None:
    """Where the config names none, as with Ollama at its usual place."""
    url = await serve(listing("qwen", "phi"))
    machine.spots = [ProbeTarget("Ollama", "ollama", url)]
    machine.configure('[agent]\nprovider = "ollama"\n')
    choice = await machine.choose()
    assert (choice.provider, choice.model, choice.base_url) == ("ollama", "qwen", url)
    bare = url.removesuffix("/v1")
    machine.configure(f'[agent]\nprovider = "ollama"\nbase_url = "{bare}"\n')
    assert (await machine.choose()).base_url == url
    machine.configure(f'[agent]\nprovider = "openai-compatible"\nbase_url = "{url}"\n')
    assert (await machine.choose()).model == "qwen"


async def test_a_server_that_has_nothing_is_told(machine: Machine, serve: Serve) -> None:
    """It was named, so nothing else is taken instead."""
    url = await serve(b"\r\n")
    machine.configure(f'[agent]\nprovider = "openai-compatible"\nbase_url = "{url}"\n')
    assert await machine.told() == (
        "FOLDER/dodona.toml:2: agent.model is not set, and no default was found: the server at "
        f"{url}: unexpected response. Set a model, or start the server."
    )


# -- by name -----------------------------------------------------------------------------------

OWN_SERVER = 'provider = "openai-compatible"\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "oak"\n'
OPENROUTER = '[agent]\nprovider = "openrouter"\napi_key = "env:WORK_KEY"\n'
PROXY = (
    '[agent]\nprovider = "openai"\nbase_url = "https://proxy.example/v1"\nmodel = "openai/gpt"\n'
)
WITH_NIGHT = f'[agent]\nprovider = "anthropic"\n[agents.night]\n{OWN_SERVER}'
WITH_OWN_KEY = (
    '[agent]\nprovider = "anthropic"\n'
    '[agents.night]\nprovider = "deepseek"\napi_key = "env:WORK_KEY"\n'
)

# Config, keys in the environment, name: provider and model.
NAMED: list[tuple[str, tuple[str, ...], str, tuple[str, str]]] = [
    (OPENROUTER, (), "deepseek/deepseek-chat", ("openrouter", "deepseek/deepseek-chat")),
    (OPENROUTER, ("DEEPSEEK",), "deepseek/deepseek-chat", ("deepseek", "deepseek-chat")),
    (OPENROUTER, (), "openrouter/deepseek/deepseek-chat", ("openrouter", "deepseek/deepseek-chat")),
    (OPENROUTER, (), "openrouter/auto", ("openrouter", "openrouter/auto")),
    (OPENROUTER, (), "nobody/oak", ("openrouter", "nobody/oak")),
    ('[agent]\nprovider = "anthropic"\n', ("ANTHROPIC",), "anthropic/elm", ("anthropic", "elm")),
    (
        '[agent]\nprovider = "anthropic"\n',
        ("ANTHROPIC",),
        "openai/elm",
        ("anthropic", "openai/elm"),
    ),
    (
        '[agent]\nprovider = "anthropic"\n[agent.fallback]\nprovider = "openai"\n',
        ("ANTHROPIC", "OPENAI"),
        "openai/elm",
        ("openai", "elm"),
    ),
    (WITH_NIGHT, ("ANTHROPIC",), "openai-compatible/a/b", ("openai-compatible", "a/b")),
    (WITH_NIGHT, ("ANTHROPIC",), "ollama/elm", ("anthropic", "ollama/elm")),
    (WITH_OWN_KEY, ("ANTHROPIC",), "deepseek/deepseek-chat", ("deepseek", "deepseek-chat")),
    (f"[agent]\n{OWN_SERVER}", (), "deepseek/elm", ("openai-compatible", "deepseek/elm")),
    (PROXY, (), "openai/elm", ("openai", "openai/elm")),
    (PROXY, (), "anthropic/elm", ("openai", "anthropic/elm")),
    (PROXY, (), "openai", ("openai", "openai")),
    ("", ("DEEPSEEK",), "deepseek/deepseek-chat", ("deepseek", "deepseek-chat")),
]


@pytest.mark.parametrize(("config", "keys", "name", "expected"), NAMED)
async def test_a_name_with_a_slash_names_a_provider_only_if_that_is_configured(
    machine: Machine, config: str, keys: tuple[str, ...], name: str, expected: tuple[str, str]
) -> None:
    """By a section of the config or by a key. Otherwise it is a name of the agent's provider."""
    machine.configure(config)
    machine.environment["WORK_KEY"] = KEY
    machine.environment |= {f"{key}_API_KEY": f"{KEY}-of-{key}" for key in keys}
    choice = await machine.choose_model(name)
    assert summary(choice) == (*expected, "the request names it")


async def test_ollama_is_configured_when_it_runs(
    machine: Machine, serve: Serve, listing: Callable[..., bytes]
) -> None:
    """It needs no key and no section."""
    machine.spots = [ProbeTarget("Ollama", "ollama", await serve(listing("elm")))]
    machine.configure(OPENROUTER)
    machine.environment["WORK_KEY"] = KEY
    choice = await machine.choose_model("ollama/elm")
    assert (choice.provider, choice.model, choice.base_url) == (
        *("ollama", "elm"),
        machine.spots[0].base_url,
    )


async def test_a_section_s_own_key_and_url_apply_to_its_models(machine: Machine) -> None:
    """Also when a request to another agent names one of them."""
    machine.environment |= {"ANTHROPIC_API_KEY": KEY, "WORK_KEY": f"{KEY}-of-work"}
    machine.configure(f'{WITH_NIGHT}api_key = "env:WORK_KEY"\ntimeouts.gap = 5\n')
    choice = await machine.choose_model("openai-compatible/elm")
    assert choice.key
    assert (choice.key.reveal(), choice.base_url) == (f"{KEY}-of-work", "http://127.0.0.1:1/v1")
    assert choice.timeouts.gap == 5


async def test_the_config_may_write_the_provider_before_the_model(machine: Machine) -> None:
    """Without a provider, the one that the name starts with is used if it has a key."""
    machine.environment |= {"ANTHROPIC_API_KEY": KEY, "DEEPSEEK_API_KEY": f"{KEY}-of-deepseek"}
    machine.configure('[agent]\nmodel = "deepseek/deepseek-chat"\n')
    assert summary(await machine.choose())[:2] == ("deepseek", "deepseek-chat")
    machine.configure('[agent]\nprovider = "deepseek"\nmodel = "deepseek/deepseek-chat"\n')
    assert summary(await machine.choose())[:2] == ("deepseek", "deepseek-chat")
    machine.configure(PROXY)
    assert summary(await machine.choose())[:2] == ("openai", "openai/gpt")


# Config, and the model of a subagent whose own model is `deepseek/deepseek-chat`.
OVERRIDES: list[tuple[str, tuple[str, str] | None]] = [
    (OPENROUTER, ("openrouter", "deepseek/deepseek-chat")),
    ('[agent]\nprovider = "deepseek"\n', ("deepseek", "deepseek-chat")),
    (
        '[agent]\nprovider = "anthropic"\n[agent.fallback]\nprovider = "deepseek"\n',
        ("deepseek", "deepseek-chat"),
    ),
    ('[agent]\nprovider = "anthropic"\n', None),
    ('[agent]\nprovider = "extractive"\n', None),
]


@pytest.mark.parametrize(("config", "expected"), OVERRIDES)
async def test_a_subagent_s_own_model_is_one_of_the_agent_s_providers(
    machine: Machine, config: str, expected: tuple[str, str] | None
) -> None:
    """A key alone sends no texts to DeepSeek. If the model fails, those of the agent answer."""
    for name in ("WORK_KEY", "ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY"):
        machine.environment[name] = f"{KEY}-of-{name}"
    machine.configure(config)
    choice = await machine.choose_override("deepseek/deepseek-chat")
    assert (choice and (choice.provider, choice.model)) == expected
    if choice is not None:
        agent = await machine.choose()
        chain = [(link.provider, link.model) for link in agent.chain()]
        assert [(link.provider, link.model) for link in choice.chain()] == [expected, *chain]
