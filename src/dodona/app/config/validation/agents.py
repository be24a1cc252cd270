"""What the settings of agents demand of each other, of the tools that there are, and of files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, cast

from dodona.agent.run_context.registries import SUBAGENTS
from dodona.app.agents.souls import read_soul
from dodona.app.config import shape as schema
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
    """The agents that these settings define, the default one first."""
    agent, others = table.get("agent"), table.get("agents")
    id_ = agent.get("id") if schema.is_table(agent) else None
    names = others if schema.is_table(others) else ()
    return (id_ if isinstance(id_, str) else DEFAULT_AGENT, *names)


def validate_agents(
    table: Mapping[str, Any], origins: SettingOrigins, extra_tools: Collection[str]
) -> Iterator[ConfigError]:
    """Every rule that agents break; `extra_tools` are there beside the shipped ones."""
    yield from _check_names(table, origins)
    for path, agent in _iter_agents(table):
        yield from _check_provider(path, agent, origins)
        yield from _check_max_tokens(path, agent, origins)
        yield from _check_tools(path, agent, origins, extra_tools)
        yield from _check_soul(path, agent, origins)


def _iter_agents(table: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    named = table.get("agents")
    roots: dict[KeyPath, Any] = {("agent",): table.get("agent")}
    if schema.is_table(named):
        roots |= {("agents", name): agent for name, agent in named.items()}
    for root, table_of_root in roots.items():
        path, agent = root, table_of_root
        while schema.is_table(agent):
            yield path, agent
            path, agent = (*path, "fallback"), agent.get("fallback")


def _check_names(table: Mapping[str, Any], origins: SettingOrigins) -> Iterator[ConfigError]:
    """One name, one agent: session keys and records know them by nothing else."""
    default, *others = agent_names(table)
    if default in SUBAGENTS:
        yield validation_errors(origins).invalid_value(
            ("agent", "id"), "is the name of a subagent", got=default, hint="Choose another."
        )
    for name in others:
        if name == default:
            yield validation_errors(origins).invalid_value(
                ("agents", name),
                "has the name of the default agent",
                hint="Set it up in [agent], or choose another name.",
            )
        elif name in SUBAGENTS:
            yield validation_errors(origins).invalid_value(
                ("agents", name), "is the name of a subagent", hint="Choose another."
            )


# -- models ------------------------------------------------------------------------------------


def _check_provider(
    path: KeyPath, agent: Mapping[str, Any], origins: SettingOrigins
) -> Iterator[ConfigError]:
    provider = agent.get("provider")
    if not isinstance(provider, str):
        yield from _check_missing_provider(path, agent, origins)
        return
    need = _REQUIRED_KEY.get(provider)
    if need and need not in agent:
        by = (*path, "provider")
        yield validation_errors(origins).missing_key(
            (*path, need), f"{provider} needs it", required_by=by
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
        return  # it is no text: that is told already
    if path[-1] == "fallback":
        yield validation_errors(origins).missing_key(
            (*path, "provider"), "a fallback is never chosen"
        )
    for key in ("api_key", "base_url"):
        if key in agent and path[-1] != "fallback":
            missing = (*path, "provider")
            yield validation_errors(origins).missing_key(
                missing, f"{key} depends on it", required_by=(*path, key)
            )
            return


def _model_name(agent: Mapping[str, Any]) -> str:
    """The language model that will be asked, as far as it is known now."""
    provider, model = agent.get("provider"), agent.get("model")
    if provider is not None and (not isinstance(provider, str) or provider in _IGNORED_KEYS):
        return ""
    if model is None and provider is not None and provider in PROVIDERS:
        model = PROVIDERS[provider].default_model
    return model if isinstance(model, str) else ""


def _check_max_tokens(
    path: KeyPath, agent: Mapping[str, Any], origins: SettingOrigins
) -> Iterator[ConfigError]:
    """A model refuses a request for more than it can write."""
    wanted, model = agent.get("max_tokens"), _model_name(agent)
    if not model or type(wanted) is not int:
        return
    known = model_facts(model)
    whole = known.context_size if known.source != "default" else None
    most = known.max_output or whole
    if most is not None and wanted > most:
        what = "the longest answer of" if known.max_output else "all that fits into"
        yield validation_errors(origins).invalid_value(
            (*path, "max_tokens"), f"must be <= {most}, {what} {model[:80]}", got=wanted
        )


# -- what else an agent has --------------------------------------------------------------------


def _check_tools(
    path: KeyPath, agent: Mapping[str, Any], origins: SettingOrigins, extra_tools: Collection[str]
) -> Iterator[ConfigError]:
    wanted = agent.get("tools")
    if not isinstance(wanted, list) or not wanted:
        return
    # Only who names tools waits until they are imported.
    from dodona.tools.names import BUILTIN_TOOL_NAMES  # noqa: PLC0415

    known = {
        *BUILTIN_TOOL_NAMES,
        *extra_tools,
        *(each.delegation_tool.name for each in SUBAGENTS.values()),
    }
    for place, name in enumerate(cast("list[Any]", wanted)):
        if isinstance(name, str) and name and name not in known:
            yield validation_errors(origins).invalid_value(
                (*path, "tools", place),
                "is no tool",
                got=name,
                hint=did_you_mean(name, known) or f"Tools are {', '.join(sorted(known))}.",
            )


def _check_soul(
    path: KeyPath, agent: Mapping[str, Any], origins: SettingOrigins
) -> Iterator[ConfigError]:
    where = (*path, "soul_path")
    named = agent.get("soul_path")
    if not isinstance(named, str) or not named or "fallback" in path:
        return
    try:
        read_soul(origins.resolve(named, where))
    except ConfigError as error:
        reason = error.message.removesuffix(".").removeprefix("the soul cannot be used: ")
        yield validation_errors(origins).invalid_value(
            where, f"names no soul: {reason}", got=named, hint=error.hint
        )


MATCH_KEYS: Final = ("channel", "account_id", "peer_id", "guild_id", "team_id")


def validate_bindings(table: Mapping[str, Any], origins: SettingOrigins) -> Iterator[ConfigError]:
    bindings = table.get("bindings")
    if not isinstance(bindings, list):
        return
    names = agent_names(table)
    known = frozenset(names)
    for place, binding in enumerate(cast("list[Any]", bindings)):
        if not schema.is_table(binding):
            continue
        agent = binding.get("agent_id")
        if isinstance(agent, str) and agent and agent not in known:
            yield validation_errors(origins).invalid_value(
                ("bindings", place, "agent_id"),
                "names no agent",
                got=agent,
                hint=did_you_mean(agent, names) or f"Agents are {', '.join(names)}.",
            )
        if not any(key in binding for key in MATCH_KEYS):
            yield validation_errors(origins).invalid_value(
                ("bindings", place),
                "matches everybody, as the default agent does",
                hint=f"Set one of {', '.join(MATCH_KEYS)}.",
            )
