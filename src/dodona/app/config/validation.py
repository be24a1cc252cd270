"""Validates settings against each other.

The rules check the raw table, not the parsed settings, so one error does not hide another.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from dodona.agent.run_context.registry import LIBRARIAN
from dodona.app.agents.souls import read_soul
from dodona.app.config.origins import SettingOrigins
from dodona.app.config.settings import PROVIDER_NAMES, Settings
from dodona.app.config.shape import is_list_of_sections
from dodona.core.domain.agents import DEFAULT_AGENT, DEFAULT_DECISION_TREE
from dodona.core.errors import ConfigError, did_you_mean
from dodona.documents import KeyPath, dotted_key, is_table
from dodona.models.catalogue.catalogue import model_facts
from dodona.models.providers import PROVIDERS

_Table: TypeAlias = Mapping[str, Any]
_Errors: TypeAlias = Iterator[ConfigError]

_REQUIRED_KEY = {"openai-compatible": "base_url", "scripted": "model"}
_IGNORED_KEYS = {
    "extractive": ("model", "api_key", "base_url", "temperature", "timeouts", "fallback"),
    "scripted": ("api_key", "base_url", "temperature", "timeouts"),
}
_SECRET_NAME = re.compile(r"(?i)key|token|secret|passw|credential|authorization|cookie")
_SOURCE_PREFIXES = ("env:", "file:")
_POSTGRES = ("postgresql", "postgres")
_SCHEMES = ("sqlite", *_POSTGRES)
_IN_MEMORY = re.compile(r"/*(:memory:.*)?")
# Also as a query parameter, which libpq supports. Only the environment may contain passwords.
_PASSWORD = re.compile(r"[^/?]*:[^/?]*@|.*[?&]password=", re.DOTALL)
_PASSWORD_HINT = (
    'Remove it and add: password = "env:PGPASSWORD". Or set the whole URL in the environment as '
    "DODONA_STORE__URL."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionNames:
    """The names that agents may use in addition to the built-in ones."""

    tools: frozenset[str] = frozenset()
    subagents: frozenset[str] = frozenset()
    decision_trees: frozenset[str] = frozenset()
    providers: frozenset[str] = frozenset()


NO_NAMES: Final = ExtensionNames()


def validate_settings(
    table: _Table, origins: SettingOrigins, *, untrusted: Collection[KeyPath] = ()
) -> _Errors:
    """Yield all errors except names that extensions may declare: see `validate_names`.

    A file that an `untrusted` setting names is not read.
    """
    yield from validate_agents(table, origins)
    for path, agent in _iter_agents(table):
        if (*path, "soul_path") not in untrusted:
            yield from _check_soul(path, agent, origins)
    yield from validate_bindings(table, origins)
    yield from validate_plugins(table, origins)
    yield from validate_mcp(table, origins)
    store = table.get("store")
    if is_table(store):
        yield from _check_store(store, origins)
    yield from _check_nul((), table, origins)


def _check_store(store: _Table, origins: SettingOrigins) -> _Errors:
    url = store.get("url", "")
    if not isinstance(url, str):
        return
    path = ("store", "url")
    scheme, separator, rest = url.partition("://")
    is_file = not separator or scheme == "sqlite"
    if not is_file and scheme not in _POSTGRES:
        message = f"must be a path, sqlite:// or postgresql:// (got {scheme}://)"
        yield origins.errors.invalid_value(path, message, hint=did_you_mean(scheme, _SCHEMES))
    elif url and is_file and _IN_MEMORY.fullmatch(rest if separator else url):
        yield origins.errors.invalid_value(
            path, "must be a file", hint="A database in memory is lost when Dodona stops."
        )
    elif not is_file and path not in origins.variables and _PASSWORD.match(rest):
        yield origins.errors.invalid_value(path, "must not contain a password", hint=_PASSWORD_HINT)
    if is_file and "password" in store:
        yield ineffective_setting(("store", "password"), "SQLite", origins)


def _check_nul(path: KeyPath, value: Any, origins: SettingOrigins) -> _Errors:
    """Reject NUL in any text, because each may reach a system call, which does not accept it."""
    if is_table(value):
        for name, child in value.items():
            yield from _check_nul((*path, name), child, origins)
    elif isinstance(value, list):
        for index, child in enumerate(cast("list[Any]", value)):
            yield from _check_nul((*path, index), child, origins)
    elif isinstance(value, str) and "\0" in value:
        yield origins.errors.invalid_value(
            path, "must not contain a NUL character", hint="Remove it."
        )


# -- agents --------------------------------------------------------------------------------------


def agent_names(table: _Table) -> tuple[str, ...]:
    """Return the names of all configured agents, the default agent first."""
    agent, others = table.get("agent"), table.get("agents")
    id_ = agent.get("id") if is_table(agent) else None
    names = others if is_table(others) else ()
    return (id_ if isinstance(id_, str) else DEFAULT_AGENT, *names)


def validate_agents(table: _Table, origins: SettingOrigins) -> _Errors:
    """Yield all errors in agents."""
    yield from _check_duplicate_names(table, origins)
    for path, agent in _iter_agents(table):
        yield from _check_provider(path, agent, origins)
        yield from _check_max_tokens(path, agent, origins)


def validate_names(
    table: _Table, origins: SettingOrigins, names: ExtensionNames = NO_NAMES
) -> _Errors:
    """Yield an error for each unknown tool, decision tree or provider of an agent."""
    plugins = [name for _, name in plugin_names(table)]
    yield from _check_agent_names(table, origins, {LIBRARIAN.name, *names.subagents})
    for path, agent in _iter_agents(table):
        yield from _check_tools(path, agent, origins, {*plugins, *names.tools})
        for key, label, known in (
            ("provider", "provider", (*PROVIDER_NAMES, *names.providers)),
            ("decision_tree", "decision tree", (DEFAULT_DECISION_TREE, *names.decision_trees)),
        ):
            name = agent.get(key)
            if isinstance(name, str) and name and name not in known:
                yield origins.errors.invalid_value(
                    (*path, key),
                    f"must be a known {label}",
                    got=name,
                    hint=did_you_mean(name, known)
                    or f"{label.capitalize()}s: {', '.join(dict.fromkeys(known))}.",
                )


def _iter_agents(table: _Table) -> Iterator[tuple[KeyPath, _Table]]:
    others = table.get("agents")
    roots: dict[KeyPath, Any] = {("agent",): table.get("agent")}
    if is_table(others):
        roots |= {("agents", name): agent for name, agent in others.items()}
    for root_path, root in roots.items():
        path, agent = root_path, root
        while is_table(agent):
            yield path, agent
            path, agent = (*path, "fallback"), agent.get("fallback")


def _check_duplicate_names(table: _Table, origins: SettingOrigins) -> _Errors:
    """Yield an error for each duplicate name: session keys and records contain only the name."""
    default, *others = agent_names(table)
    for name in others:
        if name == default:
            yield origins.errors.invalid_value(
                ("agents", name),
                "has the same name as the default agent",
                hint="Configure the default agent in [agent], or choose another name.",
            )


def _check_agent_names(
    table: _Table, origins: SettingOrigins, subagents: Collection[str]
) -> _Errors:
    """Yield an error for each agent with the name of a subagent."""
    default, *others = agent_names(table)
    if default in subagents:
        yield origins.errors.invalid_value(
            ("agent", "id"), "is the name of a subagent", got=default, hint="Choose another name."
        )
    for name in others:
        if name in subagents and name != default:
            yield origins.errors.invalid_value(
                ("agents", name), "is the name of a subagent", hint="Choose another name."
            )


# -- models ------------------------------------------------------------------------------------


def _check_provider(path: KeyPath, agent: _Table, origins: SettingOrigins) -> _Errors:
    provider = agent.get("provider")
    if not isinstance(provider, str):
        yield from _check_missing_provider(path, agent, origins)
        return
    required = _REQUIRED_KEY.get(provider)
    if required and required not in agent:
        yield origins.errors.missing_key(
            (*path, required), f"{provider} requires it", required_by=(*path, "provider")
        )
    for key in _IGNORED_KEYS.get(provider, ()):
        if key in agent:
            yield ineffective_setting((*path, key), provider, origins)


def _check_missing_provider(path: KeyPath, agent: _Table, origins: SettingOrigins) -> _Errors:
    if "provider" in agent:
        return  # not a string, which the settings model already reports
    if path[-1] == "fallback":
        yield origins.errors.missing_key(
            (*path, "provider"), "a fallback has no automatic provider"
        )
    for key in ("api_key", "base_url"):
        if key in agent and path[-1] != "fallback":
            missing = (*path, "provider")
            yield origins.errors.missing_key(
                missing, f"{key} depends on it", required_by=(*path, key)
            )
            return


def _model_name(agent: _Table) -> str:
    """Return the name of the language model, or "" if it is not known before startup."""
    provider, model = agent.get("provider"), agent.get("model")
    if provider is not None and (not isinstance(provider, str) or provider in _IGNORED_KEYS):
        return ""
    if model is None and provider is not None and provider in PROVIDERS:
        model = PROVIDERS[provider].default_model
    return model if isinstance(model, str) else ""


def _check_max_tokens(path: KeyPath, agent: _Table, origins: SettingOrigins) -> _Errors:
    """Yield an error if max_tokens exceeds the model's limit: the provider would reject it."""
    max_tokens, model = agent.get("max_tokens"), _model_name(agent)
    if not model or type(max_tokens) is not int:
        return
    facts = model_facts(model)
    context_size = facts.context_size if facts.source != "default" else None
    limit = facts.max_output or context_size
    if limit is not None and max_tokens > limit:
        reason = "the maximum output of" if facts.max_output else "the context window of"
        yield origins.errors.invalid_value(
            (*path, "max_tokens"), f"must be <= {limit}, {reason} {model[:80]}", got=max_tokens
        )


# -- tools, souls and bindings -----------------------------------------------------------------


def _check_tools(
    path: KeyPath, agent: _Table, origins: SettingOrigins, extra_tools: Collection[str]
) -> _Errors:
    tools = agent.get("tools")
    if not isinstance(tools, list) or not tools:
        return
    # Importing the tools is slow: do it only if the setting is used.
    from dodona.tools.names import BUILTIN_TOOL_NAMES  # noqa: PLC0415

    available = {
        *BUILTIN_TOOL_NAMES,
        *extra_tools,
        LIBRARIAN.delegation_tool.name,
    }
    for index, name in enumerate(cast("list[Any]", tools)):
        if isinstance(name, str) and name and name not in available:
            yield origins.errors.invalid_value(
                (*path, "tools", index),
                "is not a known tool",
                got=name,
                hint=did_you_mean(name, available) or f"Tools: {', '.join(sorted(available))}.",
            )


def _check_soul(path: KeyPath, agent: _Table, origins: SettingOrigins) -> _Errors:
    key = (*path, "soul_path")
    soul_path = agent.get("soul_path")
    if not isinstance(soul_path, str) or not soul_path or "fallback" in path:
        return
    try:
        read_soul(origins.resolve(soul_path, key))
    except ConfigError as error:
        reason = error.message.removesuffix(".").removeprefix("the soul cannot be used: ")
        yield origins.errors.invalid_value(
            key, f"is not a usable soul file: {reason}", got=soul_path, hint=error.hint
        )


MATCH_KEYS: Final = ("channel", "account_id", "peer_id", "guild_id", "team_id")


def validate_bindings(table: _Table, origins: SettingOrigins) -> _Errors:
    """Yield an error for each binding to an unknown agent, or without a key to match."""
    bindings = table.get("bindings")
    if not isinstance(bindings, list):
        return
    names = agent_names(table)
    name_set = frozenset(names)
    for index, binding in enumerate(cast("list[Any]", bindings)):
        if not is_table(binding):
            continue
        agent = binding.get("agent_id")
        if isinstance(agent, str) and agent and agent not in name_set:
            yield origins.errors.invalid_value(
                ("bindings", index, "agent_id"),
                "is not a configured agent",
                got=agent,
                hint=did_you_mean(agent, names) or f"Agents: {', '.join(names)}.",
            )
        if not any(key in binding for key in MATCH_KEYS):
            yield origins.errors.invalid_value(
                ("bindings", index),
                "matches all messages, like the default agent",
                hint=f"Set one of {', '.join(MATCH_KEYS)}.",
            )


# -- plugins and MCP servers ---------------------------------------------------------------------


def plugin_names(table: _Table) -> Iterator[tuple[int, str]]:
    """Yield the index and name of each plugin that has a name."""
    plugins = table.get("plugins")
    for index, plugin in enumerate(cast("list[Any]", plugins) if isinstance(plugins, list) else ()):
        name = plugin.get("name") if is_table(plugin) else None
        if isinstance(name, str):
            yield index, name


def validate_plugins(table: _Table, origins: SettingOrigins) -> _Errors:
    """Yield an error for each plugin name that is already in use."""
    names = list(plugin_names(table))
    if not names:
        return
    # Importing the tools is slow: do it only if there are plugins.
    from dodona.tools.names import BUILTIN_TOOL_NAMES  # noqa: PLC0415

    first: dict[str, int] = {}
    for index, name in names:
        path = ("plugins", index, "name")
        if name in BUILTIN_TOOL_NAMES:
            yield origins.errors.invalid_value(
                path, "is the name of a built-in tool", got=name, hint="Choose another name."
            )
        elif first.setdefault(name, index) != index:
            yield origins.errors.invalid_value(
                path,
                f"is already used by plugins[{first[name]}]",
                got=name,
                hint="Choose another name, or remove one of the plugins.",
            )


def validate_mcp(table: _Table, origins: SettingOrigins) -> _Errors:
    """Yield the errors of all MCP servers."""
    servers = table.get("mcp")
    for name, server in servers.items() if is_table(servers) else ():
        if is_table(server):
            yield from _check_server(("mcp", name), server, origins)


def _check_server(path: KeyPath, server: _Table, origins: SettingOrigins) -> _Errors:
    if ("url" in server) == ("command" in server):
        message = "has both url and command" if "url" in server else "has neither url nor command"
        yield origins.errors.invalid_value(path, message, hint="Set one of them.")
    elif "url" in server:
        yield from (
            ineffective_setting((*path, key), "url", origins)
            for key in ("args", "env")
            if key in server
        )
    elif "headers" in server:
        yield ineffective_setting((*path, "headers"), "command", origins)
    for part in ("headers", "env"):
        yield from _check_secrets((*path, part), server.get(part), origins)


def _check_secrets(path: KeyPath, texts: Any, origins: SettingOrigins) -> _Errors:
    """Yield an error for each literal value whose name says it is a secret."""
    for name, text in texts.items() if is_table(texts) else ():
        if (
            isinstance(text, str)
            and _SECRET_NAME.search(name)
            and not text.startswith(_SOURCE_PREFIXES)
        ):
            yield origins.errors.invalid_value(
                (*path, name),
                'must be "env:NAME" or "file:PATH", never the secret itself',
                hint="The config file only says where to find the secret.",
            )


_UNUSED_SECTIONS: Final = ("plugins", "mcp")


def unused_sections(settings: Settings, origins: SettingOrigins) -> Iterator[str]:
    """Yield a warning for each configured section that has no effect yet."""
    for name in _UNUSED_SECTIONS:
        entries = getattr(settings, name)
        is_list = is_list_of_sections((name,))
        paths: Sequence[KeyPath] = [(name,)] if is_list else [(name, key) for key in entries]
        for path in paths if entries else ():
            title = f"[[{name}]]" if is_list else f"[{dotted_key(path)}]"
            yield f"{origins.nearest(path)}: {title} has no effect yet."


# -- errors --------------------------------------------------------------------------------------


def ineffective_setting(path: KeyPath, consumer: str, origins: SettingOrigins) -> ConfigError:
    """Return the error for a setting that `consumer` ignores, although its author expects one."""
    return origins.errors.invalid_value(
        path, f"has no effect: {consumer} does not use it", hint="Remove it."
    )
