"""Validates agents and bindings: names, providers, tools and soul files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, cast

from dodona.agent.run_context.registries import SUBAGENTS
from dodona.app.agents.souls import read_soul
from dodona.app.config import shape
from dodona.app.config.errors import (
    check_secret_destination,
    ineffective_setting,
    validation_errors,
)
from dodona.app.config.origins import SettingOrigins
from dodona.core.domain.agents import DEFAULT_AGENT
from dodona.core.errors import ConfigError, did_you_mean
from dodona.documents.toml_lines import KeyPath
from dodona.models.catalogue.catalogue import model_facts
from dodona.models.providers import PROVIDERS

_REQUIRED_KEY = {"openai-compatible": "base_url", "scripted": "model"}
_IGNORED_KEYS = {
    "extractive": ("model", "api_key", "base_url", "temperature", "timeouts", "fallback"),
    "scripted": ("api_key", "base_url", "temperature", "timeouts"),
}


def agent_names(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of all configured agents, the default agent first."""
    agent, others = table.get("agent"), table.get("agents")
    id_ = agent.get("id") if shape.is_table(agent) else None
    names = others if shape.is_table(others) else ()
    return (id_ if isinstance(id_, str) else DEFAULT_AGENT, *names)


def validate_agents(
    table: Mapping[str, Any], origins: SettingOrigins, extra_tools: Collection[str]
) -> Iterator[ConfigError]:
    """Yield all errors in agents. `extra_tools` exist in addition to the built-in tools."""
    yield from _check_names(table, origins)
    for path, agent in _iter_agents(table):
        yield from _check_provider(path, agent, origins)
        yield from _check_max_tokens(path, agent, origins)
        yield from _check_tools(path, agent, origins, extra_tools)
        yield from _check_soul(path, agent, origins)


def _iter_agents(table: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    others = table.get("agents")
    roots: dict[KeyPath, Any] = {("agent",): table.get("agent")}
    if shape.is_table(others):
        roots |= {("agents", name): agent for name, agent in others.items()}
    for root_path, root in roots.items():
        path, agent = root_path, root
        while shape.is_table(agent):
            yield path, agent
            path, agent = (*path, "fallback"), agent.get("fallback")


def _check_names(table: Mapping[str, Any], origins: SettingOrigins) -> Iterator[ConfigError]:
    """Yield an error for each duplicate name: session keys and records contain only the name."""
    default, *others = agent_names(table)
    if default in SUBAGENTS:
        yield validation_errors(origins).invalid_value(
            ("agent", "id"), "is the name of a subagent", got=default, hint="Choose another name."
        )
    for name in others:
        if name == default:
            yield validation_errors(origins).invalid_value(
                ("agents", name),
                "has the same name as the default agent",
                hint="Configure the default agent in [agent], or choose another name.",
            )
        elif name in SUBAGENTS:
            yield validation_errors(origins).invalid_value(
                ("agents", name), "is the name of a subagent", hint="Choose another name."
            )


# -- models ------------------------------------------------------------------------------------


def _check_provider(
    path: KeyPath, agent: Mapping[str, Any], origins: SettingOrigins
) -> Iterator[ConfigError]:
    provider = agent.get("provider")
    if not isinstance(provider, str):
        yield from _check_missing_provider(path, agent, origins)
        return
    required = _REQUIRED_KEY.get(provider)
    if required and required not in agent:
        yield validation_errors(origins).missing_key(
            (*path, required), f"{provider} requires it", required_by=(*path, "provider")
        )
    for key in _IGNORED_KEYS.get(provider, ()):
        if key in agent:
            yield ineffective_setting((*path, key), provider, origins)
    address = agent.get("base_url")
    if (
        "api_key" in agent
        and isinstance(address, str)
        and origins.is_untrusted((*path, "base_url"))
    ):
        yield from check_secret_destination((*path, "api_key"), address, origins)


def _check_missing_provider(
    path: KeyPath, agent: Mapping[str, Any], origins: SettingOrigins
) -> Iterator[ConfigError]:
    if "provider" in agent:
        return  # not a string, which the settings model already reports
    if path[-1] == "fallback":
        yield validation_errors(origins).missing_key(
            (*path, "provider"), "a fallback has no automatic provider"
        )
    for key in ("api_key", "base_url"):
        if key in agent and path[-1] != "fallback":
            missing = (*path, "provider")
            yield validation_errors(origins).missing_key(
                missing, f"{key} depends on it", required_by=(*path, key)
            )
            return


def _model_name(agent: Mapping[str, Any]) -> str:
    """Return the name of the language model, or "" if it is not known before startup."""
    provider, model = agent.get("provider"), agent.get("model")
    if provider is not None and (not isinstance(provider, str) or provider in _IGNORED_KEYS):
        return ""
    if model is None and provider is not None and provider in PROVIDERS:
        model = PROVIDERS[provider].default_model
    return model if isinstance(model, str) else ""


def _check_max_tokens(
    path: KeyPath, agent: Mapping[str, Any], origins: SettingOrigins
) -> Iterator[ConfigError]:
    """Yield an error if max_tokens exceeds the model's limit: the provider would reject it."""
    max_tokens, model = agent.get("max_tokens"), _model_name(agent)
    if not model or type(max_tokens) is not int:
        return
    facts = model_facts(model)
    context_size = facts.context_size if facts.source != "default" else None
    limit = facts.max_output or context_size
    if limit is not None and max_tokens > limit:
        reason = "the maximum output of" if facts.max_output else "the context window of"
        yield validation_errors(origins).invalid_value(
            (*path, "max_tokens"), f"must be <= {limit}, {reason} {model[:80]}", got=max_tokens
        )


# -- tools, souls and bindings -----------------------------------------------------------------


def _check_tools(
    path: KeyPath, agent: Mapping[str, Any], origins: SettingOrigins, extra_tools: Collection[str]
) -> Iterator[ConfigError]:
    tools = agent.get("tools")
    if not isinstance(tools, list) or not tools:
        return
    # Importing the tools is slow: do it only if the setting is used.
    from dodona.tools.names import BUILTIN_TOOL_NAMES  # noqa: PLC0415

    available = {
        *BUILTIN_TOOL_NAMES,
        *extra_tools,
        *(each.delegation_tool.name for each in SUBAGENTS.values()),
    }
    for index, name in enumerate(cast("list[Any]", tools)):
        if isinstance(name, str) and name and name not in available:
            yield validation_errors(origins).invalid_value(
                (*path, "tools", index),
                "is not a known tool",
                got=name,
                hint=did_you_mean(name, available) or f"Tools: {', '.join(sorted(available))}.",
            )


def _check_soul(
    path: KeyPath, agent: Mapping[str, Any], origins: SettingOrigins
) -> Iterator[ConfigError]:
    key = (*path, "soul_path")
    soul_path = agent.get("soul_path")
    if not isinstance(soul_path, str) or not soul_path or "fallback" in path:
        return
    try:
        read_soul(origins.resolve(soul_path, key))
    except ConfigError as error:
        reason = error.message.removesuffix(".").removeprefix("the soul cannot be used: ")
        yield validation_errors(origins).invalid_value(
            key, f"is not a usable soul file: {reason}", got=soul_path, hint=error.hint
        )


MATCH_KEYS: Final = ("channel", "account_id", "peer_id", "guild_id", "team_id")


def validate_bindings(table: Mapping[str, Any], origins: SettingOrigins) -> Iterator[ConfigError]:
    """Yield an error for each binding to an unknown agent, or without a key to match."""
    bindings = table.get("bindings")
    if not isinstance(bindings, list):
        return
    names = agent_names(table)
    name_set = frozenset(names)
    for index, binding in enumerate(cast("list[Any]", bindings)):
        if not shape.is_table(binding):
            continue
        agent = binding.get("agent_id")
        if isinstance(agent, str) and agent and agent not in name_set:
            yield validation_errors(origins).invalid_value(
                ("bindings", index, "agent_id"),
                "is not a configured agent",
                got=agent,
                hint=did_you_mean(agent, names) or f"Agents: {', '.join(names)}.",
            )
        if not any(key in binding for key in MATCH_KEYS):
            yield validation_errors(origins).invalid_value(
                ("bindings", index),
                "matches all messages, like the default agent",
                hint=f"Set one of {', '.join(MATCH_KEYS)}.",
            )
