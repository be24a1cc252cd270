"""The settings of the config file, one model per section.

The reference page, the JSON Schema and all validation derive from these models. The defaults
must work without a config file. Add a setting only if some users need each of its values.

The type of a setting, or its annotation, says which values need `dodona trust`: see `trust_marks`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema

from dodona.app.config.trust_marks import (
    FREE,
    INNER_PATH,
    MODEL_OR_INNER_PATH,
    PROVIDER,
    needs_trust,
)
from dodona.core.domain.agents import DEFAULT_AGENT
from dodona.core.domain.budgets import MAX_CEILING_TOKENS, MAX_CEILING_USD
from dodona.core.domain.conversations.contexts import DEFAULT_TOKEN_BUDGET, TOKEN_BUDGET_BOUNDS
from dodona.core.domain.path_patterns import find_problem
from dodona.documents import NonEmptyStrings, Section, field_error
from dodona.gateway.settings import RequestLimits
from dodona.models.providers import PROVIDERS, is_http_url
from dodona.models.wire import Timeouts
from dodona.net.redactor import Redactor
from dodona.net.urls import is_host, is_ip

PROVIDER_NAMES = (*PROVIDERS, "extractive", "scripted")  # others are those of extensions

# `dodona config schema` exports these patterns, so they must be valid in JavaScript too.
_SOURCE = r"env:[A-Za-z_][A-Za-z0-9_]*|file:.*\S.*"
_AGENT_NAME = r"[A-Za-z0-9-]{1,64}"
_NAME = r"[A-Za-z0-9_-]{1,64}"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_HEADER = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_CAPABILITY = r"http:[A-Za-z0-9.-]+(:[0-9]{1,5})?|(store|function):[A-Za-z0-9_-]+"
_ADDRESS = r"https?://.+"

_KEY_HINT = (
    "Use env: and the name of an environment variable, or file: and the path of a file that only "
    "you can read (chmod 600)."
)


def _check_path_pattern(pattern: str) -> str:
    if problem := find_problem(pattern):
        raise field_error(problem, "Give a pattern relative to the vault, such as Clippings/**.")
    return pattern


def _check_secret_source(text: str) -> str:
    if not re.fullmatch(_SOURCE, text):
        raise field_error('must be "env:NAME" or "file:PATH", never the secret itself', _KEY_HINT)
    return text


def _check_web_address(text: str) -> str:
    if not is_http_url(text):
        raise field_error(
            "must be an http(s) URL with only a host, port and path",
            'For example "http://127.0.0.1:8000/v1".',
        )
    return text.rstrip("/")


def _check_agent_name(name: str) -> str:
    if not re.fullmatch(_AGENT_NAME, name):
        raise field_error("is not a valid agent name", "Use up to 64 letters, digits and hyphens.")
    return name


def _check_name(name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise field_error("is not a valid name", "Use up to 64 letters, digits, _ and -.")
    return name


def _check_variable(name: str) -> str:
    if not re.fullmatch(_VARIABLE, name):
        raise field_error("is not a valid variable name", "Use letters, digits and _.")
    return name


def _check_header(name: str) -> str:
    if not re.fullmatch(_HEADER, name):
        raise field_error("is not a valid header name", 'For example "Authorization".')
    return name


def _check_text_or_source(text: str) -> str:
    if text.startswith(("env:", "file:")):
        return _check_secret_source(text)
    if not text.isprintable():
        raise field_error("must be a single line of text")
    if Redactor().scrub(text) != text:
        raise field_error('must be "env:NAME" or "file:PATH", never the secret itself', _KEY_HINT)
    return text


def _check_capability(text: str) -> str:
    if not re.fullmatch(_CAPABILITY, text):
        raise field_error(
            "is not a valid capability", "Use http:HOST, store:NAME or function:NAME."
        )
    return text


def _check_engine(kind: Any) -> Any:
    if kind == "restate":
        raise field_error('must be "local": restate is not supported yet', "Remove the setting.")
    return kind


# These belong to the agent, not to the model, so a fallback cannot set them.
_AGENT_ONLY_KEYS = (
    *("tree", "decision_tree", "system_prompt", "soul_path", "tools"),
    *("queue", "queue_limit"),
)


def _check_fallback(fallback: AgentSection) -> AgentSection:
    keys = [name for name in _AGENT_ONLY_KEYS if name in fallback.model_fields_set]
    if keys:
        raise field_error(
            f"must not set {keys[0]}", "A fallback always uses the value of its agent."
        )
    return fallback


def _check_host_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not is_host(name):
            raise field_error(
                f"contains {name!r:.80}, which is not a valid host",
                "Write it as in the Host header, in lower case: NAME or NAME:PORT.",
            )
    return names


def _check_addresses(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if not is_ip(text):
            raise field_error(
                f"contains {text!r:.80}, which is not an IP address",
                'For example "127.0.0.1" or "::1".',
            )
    return texts


def _pattern_schema(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^({pattern})$"})


Text = Annotated[str, Field(min_length=1), FREE]
InnerPath = Annotated[str, Field(min_length=1), INNER_PATH]
Program = Annotated[str, Field(min_length=1), needs_trust("run a program that it chooses")]
Rules = Annotated[str, needs_trust("run rules and trees that it chooses")]
# A database can contain projects that use any folder, and unfinished runs with any tree.
Database = Annotated[str, Field(min_length=1), needs_trust("use a database that it chooses")]
SecretSource = Annotated[
    str,
    AfterValidator(_check_secret_source),
    _pattern_schema(_SOURCE),
    needs_trust("use one of your secrets"),
]
TextOrSource = Annotated[str, AfterValidator(_check_text_or_source)]
AgentName = Annotated[str, AfterValidator(_check_agent_name), _pattern_schema(_AGENT_NAME), FREE]
PathPatternList = Annotated[
    tuple[Annotated[str, Field(min_length=1), AfterValidator(_check_path_pattern), FREE], ...],
    Strict(strict=False),
]
Name = Annotated[str, AfterValidator(_check_name), _pattern_schema(_NAME)]
Address = Annotated[
    str,
    AfterValidator(_check_web_address),
    _pattern_schema(_ADDRESS),
    needs_trust("send your data to an address that it chooses"),
]
ProviderName = Annotated[
    Name,
    WithJsonSchema({"type": "string", "pattern": f"^({_NAME})$", "examples": list(PROVIDER_NAMES)}),
    PROVIDER,
]


class AgentSection(Section):
    """An agent and its model. If `provider` is not set, Dodona picks one (see `dodona status`).

    In a fallback, `provider` is required, and `tree`, `decision_tree`, `system_prompt`,
    `soul_path`, `tools`, `queue` and `queue_limit` are not allowed.
    """

    provider: ProviderName | None = Field(
        default=None,
        description="The model provider: "
        + ", ".join(f"`{n}`" for n in PROVIDER_NAMES)
        + ", or that of an extension.",
    )
    model: Annotated[str, Field(min_length=1), MODEL_OR_INNER_PATH] | None = Field(
        default=None,
        description="The model's name at the provider. For `scripted`, the path of the script. "
        "Defaults to the provider's default model.",
    )
    api_key: SecretSource | None = Field(
        default=None,
        description="Where to read the API key: `env:NAME` or `file:PATH`. Defaults to the "
        "provider's usual environment variable, then the credentials file.",
    )
    base_url: Address | None = Field(
        default=None,
        description="The base URL of the provider's API, if not the usual one. Dodona sends an "
        "API key to a custom URL only if `api_key` is set.",
    )
    max_tokens: int = Field(
        default=4096, gt=0, description="The maximum length of an answer, in tokens."
    )
    temperature: float | None = Field(
        default=None,
        ge=0,
        le=2,
        description="The sampling temperature. Defaults to the provider's default.",
    )
    tree: Program | None = Field(
        default=None,
        description="The path of a `.lisp` file with the behaviour tree to run. Defaults to the "
        "built-in tree.",
    )
    system_prompt: Text | None = Field(
        default=None, description="The system prompt. Replaces the built-in prompt."
    )
    decision_tree: Annotated[Name, FREE] | None = Field(
        default=None,
        description="The name of the decision tree, which decides when a run ends. Defaults to "
        "`default`; extensions declare others.",
    )
    soul_path: InnerPath | None = Field(
        default=None,
        description="The path of a Markdown file that describes the agent's character. Its text "
        "is the first part of the prompt. Changes apply when the file is saved.",
    )
    tools: Annotated[NonEmptyStrings, FREE] | None = Field(
        default=None,
        max_length=200,
        description="The names of the tools the agent can use. Defaults to all tools.",
    )
    queue: Literal["queue", "collect", "interrupt"] = Field(
        default="queue",
        description="How to handle messages that arrive in a session during a run. `queue` "
        "answers them one by one, `collect` answers all waiting messages in one run, and "
        "`interrupt` cancels the run and answers the newest message.",
    )
    queue_limit: int = Field(
        default=20,
        ge=1,
        le=1000,
        description="The maximum number of waiting messages per session. Further messages are "
        "rejected.",
    )
    timeouts: Timeouts = Timeouts()
    fallback: Annotated[AgentSection, AfterValidator(_check_fallback)] | None = Field(
        default=None, description="The model to use when this one fails."
    )


class DefaultAgentSection(AgentSection):
    """The default agent, which answers all messages that no binding assigns to another agent.

    If `provider` is not set, Dodona picks one; `dodona status` shows which.
    """

    id: AgentName = Field(
        default=DEFAULT_AGENT,
        description="The agent's name in bindings, session keys and stored records.",
    )


class BindingSection(Section):
    """Assigns messages to an agent.

    A binding applies to messages that match all of its keys; at least one key besides `agent_id`
    must be set.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": [key]}
                for key in ("channel", "account_id", "peer_id", "guild_id", "team_id")
            ]
        }
    )

    agent_id: Text = Field(description="The agent that answers.")
    channel: Text | None = Field(default=None, description="The channel, for example `telegram`.")
    account_id: Text | None = Field(default=None, description="An account of the channel.")
    peer_id: Text | None = Field(default=None, description="A person or group.")
    guild_id: Text | None = Field(
        default=None, min_length=1, description="A guild or server of the channel."
    )
    team_id: Text | None = Field(default=None, description="A team of the guild.")


class ExtendSection(Section):
    """Extensions in Python: trusted code, which can do whatever Dodona can do.

    Installed packages with an entry point in the group `dodona` are loaded too.
    """

    python: Annotated[NonEmptyStrings, needs_trust("run Python code that it chooses")] = Field(
        default=(),
        max_length=100,
        description="Paths of `.py` files, and names of installed modules. A file is loaded again "
        "when it is saved.",
    )


class PluginSection(Section):
    """A custom tool or channel in WebAssembly. Reserved: this section has no effect yet."""

    name: Name = Field(
        description="The plugin's name. It must differ from other plugins and built-in tools."
    )
    path: str = Field(min_length=1, description="The path of the `.wasm` file.")
    type: Literal["tool", "channel"] = Field(
        default="tool", description="`tool` adds a tool, `channel` a source of messages."
    )
    capabilities: Annotated[
        tuple[Annotated[str, AfterValidator(_check_capability), _pattern_schema(_CAPABILITY)], ...],
        Strict(strict=False),
    ] = Field(
        default=(),
        max_length=100,
        description="The resources the plugin can access: `http:HOST`, `store:NAME` or "
        "`function:NAME`. It can access nothing else.",
    )
    description: Text | None = Field(
        default=None, description="A description for users. Defaults to the plugin's own."
    )


class McpServerSection(Section):
    """An MCP server under a name that you choose. Reserved: this section has no effect yet."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["url"]}, {"required": ["command"]}]}
    )

    url: Address | None = Field(
        default=None, description="The server's URL. Set either this or `command`."
    )
    headers: Mapping[
        Annotated[str, AfterValidator(_check_header), _pattern_schema(_HEADER)], TextOrSource
    ] = Field(
        default={},
        description="HTTP headers to send to `url`. Write a secret as `env:NAME` or `file:PATH`.",
    )
    command: Text | None = Field(default=None, description="The program that starts the server.")
    args: NonEmptyStrings = Field(
        default=(), max_length=200, description="The arguments of `command`."
    )
    env: Mapping[
        Annotated[str, AfterValidator(_check_variable), _pattern_schema(_VARIABLE)], TextOrSource
    ] = Field(
        default={},
        description="Environment variables for `command`. Write a secret as `env:NAME` or "
        "`file:PATH`.",
    )
    timeout_seconds: float = Field(
        default=60.0, gt=0, le=3600, description="The timeout of a tool call, in seconds."
    )


class EngineSection(Section):
    """The engine that schedules and resumes runs."""

    kind: Annotated[Literal["local"], BeforeValidator(_check_engine)] = Field(
        default="local", description="`local` executes runs in this process."
    )


class StoreSection(Section):
    """The database that holds all data."""

    url: Database | None = Field(
        default=None,
        description="A path, `sqlite:///PATH` or `postgresql://USER@HOST/NAME`. Defaults to "
        "`dodona.db` in the Dodona folder.",
    )
    password: SecretSource | None = Field(
        default=None,
        description="Where to read the PostgreSQL password: `env:NAME` or `file:PATH`.",
    )
    durability: Literal["full", "normal"] = Field(
        default="full",
        description="With `full`, acknowledged writes survive a power loss. With `normal`, they "
        "survive a process crash but not a power loss; writes are faster.",
    )


class ListenSection(Section):
    """The address of the gateway, and who its clients are."""

    host: Annotated[str, needs_trust("open the gateway to other machines")] = Field(
        default="127.0.0.1",
        min_length=1,
        description="The address to listen on. If other machines can reach it, all requests need "
        "a token.",
    )
    port: int = Field(
        default=7200, ge=0, le=65535, description="The port to listen on. 0 picks a free port."
    )
    hosts: Annotated[
        NonEmptyStrings,
        AfterValidator(_check_host_names),
        needs_trust("open the gateway to other host names"),
    ] = Field(
        default=(),
        max_length=100,
        description="Host names, besides the listening address, that clients use in the `Host` "
        "header: `NAME` or `NAME:PORT`. Requests to these hosts need a token.",
    )
    proxies: Annotated[
        NonEmptyStrings,
        AfterValidator(_check_addresses),
        needs_trust("choose proxies whose headers are believed"),
    ] = Field(
        default=(),
        max_length=100,
        description="IP addresses of trusted reverse proxies. Dodona takes the client address "
        "from their `X-Forwarded-For` header, so that limits apply to the real client.",
    )


class GatewaySection(RequestLimits, ListenSection):
    """The address `dodona up` listens on, and the limits for clients.

    Requests from other machines need a token: see the guide on giving others access. The local
    operator (a client on this machine without a token) is exempt from rate limits, but not from
    global limits.
    """


class AuditSection(Section):
    """The audit log of denied requests and administrative changes."""

    kept_days: Annotated[int, needs_trust("delete entries of the audit log")] = Field(
        default=365, ge=1, le=36_500, description="Days after which entries are deleted."
    )


class VaultSection(Section):
    """The Markdown notes that agents search."""

    path: InnerPath | None = Field(
        default=None,
        description="The folder of notes, for projects that do not set their own. Defaults to "
        "`vault` in the Dodona folder.",
    )
    untrusted: PathPatternList = Field(
        default=(),
        max_length=100,
        description="Notes that others write, such as `Clippings/**`: their text is treated like "
        "that of the web. Paths are relative to the vault; `*` matches within a name, `**` any "
        "number of folders.",
    )
    versions_days: int = Field(
        default=90,
        ge=1,
        le=36_500,
        description="Days after which replaced versions of notes are deleted.",
    )
    versions_mb: int = Field(
        default=200,
        ge=1,
        le=1_000_000,
        description="Megabytes of compressed versions to keep per project. The oldest are deleted "
        "first.",
    )


class CodeSection(Section):
    """The source code that agents search."""

    paths: Annotated[NonEmptyStrings, INNER_PATH] = Field(
        default=(),
        max_length=20,
        description="Source folders for the project `default`, unless it sets its own. Files "
        "matched by `.gitignore` are skipped.",
    )
    max_file_kb: int = Field(
        default=1024,
        ge=1,
        le=51_200,
        description="The maximum file size, in kB. Larger files are not indexed.",
    )
    embeddings: bool = Field(
        default=False,
        description="Also rank results by meaning. Requires `pip install dodona[embeddings]` and "
        "an embedding model: see the guide on code.",
    )
    untrusted: bool = Field(
        default=False,
        description="Whether others write the code: its text is treated like that of the web.",
    )


class WebSection(Section):
    """Web search and web access of agents."""

    search: Literal["none", "searxng", "brave", "duckduckgo"] = Field(
        default="none", description="The search engine behind the tool `web_search`."
    )
    searxng_url: Address | None = Field(
        default=None, description="The URL of your SearXNG server, which can run on this machine."
    )
    brave_api_key: SecretSource | None = Field(
        default=None,
        description="Where to read the Brave Search API key: `env:NAME` or `file:PATH`. Defaults "
        "to the environment variable `BRAVE_API_KEY`.",
    )
    fetch: bool = Field(default=True, description="Allow agents to fetch web pages.")
    timeout_seconds: float = Field(
        default=20.0, gt=0, le=120, description="The timeout of a fetch or search, in seconds."
    )
    max_kb: int = Field(
        default=2048,
        ge=1,
        le=51_200,
        description="The maximum size of a page, in kB. The rest of a larger page is not read.",
    )
    robots: bool = Field(default=True, description="Obey `robots.txt`.")
    allow: Annotated[
        NonEmptyStrings, needs_trust("open addresses of your machine and network to agents")
    ] = Field(
        default=(),
        max_length=100,
        description="Hosts (`HOST` or `HOST:PORT`) on this machine or the local network that "
        "agents can fetch. All other local addresses are blocked.",
    )


class TrustSection(Section):
    """What agents may do after they have read untrusted text, such as web pages."""

    hold_calls: Annotated[
        bool, needs_trust("execute calls without approval after untrusted text")
    ] = Field(
        default=True,
        description="Require approval for tool calls that write. If private text was read too, "
        "also for calls that send anything other than URLs and words that you typed.",
    )
    writes: Annotated[
        Literal["approve", "versioned"],
        needs_trust("change notes without approval after untrusted text"),
    ] = Field(
        default="approve",
        description="`versioned` allows writes without approval if they can be undone: the "
        "vault keeps a version of every note.",
    )


class LibrarianSection(Section):
    """The librarian, a subagent that the Oracle delegates work to."""

    summarise: bool = Field(
        default=True, description="Summarise tool results of more than 4,000 tokens."
    )
    summarise_lists: bool = Field(
        default=False,
        description="Also summarise shorter results with many entries: lists of more than 10 files "
        "or 20 entries of a thread, and more than 6 search results with similar scores.",
    )


class SubscribersSection(Section):
    """Subscribers, which turn events into notices for the model."""

    folder: InnerPath | None = Field(
        default=None,
        description="The folder of your subscribers, which add to the built-in ones. Defaults to "
        "`subscribers` in the Dodona folder.",
    )


class RulesSection(Section):
    """Rules, which run actions when events occur."""

    folder: Rules | None = Field(
        default=None,
        description="The folder of your rules, which add to the built-in ones. Defaults to "
        "`rules` in the Dodona folder. Trees that rules run are in the sibling folder `trees`.",
    )
    packs: Rules | None = Field(
        default=None,
        description="The folder of rule packs. Defaults to `packs` in the Dodona folder.",
    )


class ApprovalsSection(Section):
    """Tool calls that require a person's approval."""

    timeout_seconds: float = Field(
        default=600.0,
        gt=0,
        le=604_800,
        description="Seconds to wait for an answer. After that, the call is denied.",
    )


class ContextSection(Section):
    """The conversation history that each question includes."""

    idle_minutes: int = Field(
        default=1440,
        ge=1,
        le=525_600,
        description="Minutes of inactivity after which the next question starts a new "
        "conversation.",
    )
    token_budget: int = Field(
        default=DEFAULT_TOKEN_BUDGET,
        ge=TOKEN_BUDGET_BOUNDS[0],
        le=TOKEN_BUDGET_BOUNDS[1],
        description="The maximum number of tokens of earlier messages in a prompt.",
    )
    compress: bool = Field(
        default=True,
        description="Summarise older exchanges when the token budget is nearly used. The "
        "conversation tree keeps the originals.",
    )


class BudgetSection(Section):
    """A spending limit. A key that is not set has no limit.

    A plain number instead of a section, such as `daily = 500000`, sets `tokens`.
    """

    shorthand_key: ClassVar[str] = "tokens"

    tokens: int | None = Field(
        default=None, ge=0, le=MAX_CEILING_TOKENS, description="Input and output tokens together."
    )
    usd: float | None = Field(
        default=None,
        ge=0,
        le=MAX_CEILING_USD,
        description="Cost in US dollars. With this limit, models without a known price are not "
        "called.",
    )


class BudgetsSection(Section):
    """Spending limits. A model call that would exceed one is refused.

    Days and months are in UTC, and count all users together.
    """

    session: BudgetSection = Field(
        default=BudgetSection(), description="Limit per session, for its whole lifetime."
    )
    agent: BudgetSection = Field(
        default=BudgetSection(), description="Limit per agent, for all time."
    )
    user: BudgetSection = Field(
        default=BudgetSection(), description="Limit per user, for all time."
    )
    daily: BudgetSection = Field(default=BudgetSection(), description="Limit per day.")
    monthly: BudgetSection = Field(default=BudgetSection(), description="Limit per month.")
    wait_seconds: float = Field(
        default=10.0,
        ge=0,
        le=300,
        description="How long a model call waits for budget that only calls in progress have "
        "reserved, in seconds. With 0, it is refused at once.",
    )


class PriceSection(Section):
    """Prices of a model, in US dollars per million tokens.

    NAME is `MODEL` or `PROVIDER/MODEL`. These prices override the built-in ones.
    """

    input: float = Field(ge=0, description="Price of input tokens.")
    output: float = Field(ge=0, description="Price of output tokens.")
    cache_read: float | None = Field(
        default=None,
        ge=0,
        description="Price of input tokens read from the prompt cache. Defaults to `input`.",
    )
    cache_write: float | None = Field(
        default=None,
        ge=0,
        description="Price of input tokens written to the prompt cache. Defaults to `input`.",
    )


class LoggingSection(Section):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The minimum level to log."
    )
    format: Literal["auto", "text", "json"] = Field(
        default="auto", description="`auto` writes text to a terminal and JSON elsewhere."
    )


class Settings(Section):
    """All settings of the config file."""

    agent: DefaultAgentSection = Field(
        default=DefaultAgentSection(), description="The default agent."
    )
    agents: Mapping[AgentName, AgentSection] = Field(
        default={}, description="Additional agents, by name."
    )
    bindings: Annotated[tuple[BindingSection, ...], Strict(strict=False)] = Field(
        default=(), max_length=200_000, description="Which agent answers which messages."
    )
    plugins: Annotated[
        tuple[PluginSection, ...], Strict(strict=False), needs_trust("run a plugin")
    ] = Field(default=(), max_length=1000, description="Custom tools and channels.")
    mcp: Annotated[Mapping[Name, McpServerSection], needs_trust("start or call an MCP server")] = (
        Field(default={}, description="MCP servers, by name.")
    )
    extend: ExtendSection = ExtendSection()
    engine: EngineSection = EngineSection()
    store: StoreSection = StoreSection()
    gateway: GatewaySection = GatewaySection()
    audit: AuditSection = AuditSection()
    vault: VaultSection = VaultSection()
    code: CodeSection = CodeSection()
    web: WebSection = WebSection()
    trust: TrustSection = TrustSection()
    librarian: LibrarianSection = LibrarianSection()
    context: ContextSection = ContextSection()
    subscribers: SubscribersSection = SubscribersSection()
    rules: RulesSection = RulesSection()
    approvals: ApprovalsSection = ApprovalsSection()
    budgets: BudgetsSection = BudgetsSection()
    prices: Mapping[str, PriceSection] = Field(default={}, description="Prices, by model.")
    log: LoggingSection = LoggingSection()
