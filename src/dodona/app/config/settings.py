"""What can be set, section by section. The reference page and every check are made from this.

A default is what zero configuration uses. A setting needs a user who wants both values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema

from dodona.core.domain.agents import DEFAULT_AGENT
from dodona.core.domain.conversations.contexts import DEFAULT_TOKEN_BUDGET, TOKEN_BUDGET_BOUNDS
from dodona.core.errors import did_you_mean
from dodona.documents import NonEmptyStrings, Section, field_error
from dodona.gateway.settings import RequestLimits
from dodona.metering.ceilings import MAX_CEILING_TOKENS, MAX_CEILING_USD
from dodona.models import wire
from dodona.models.providers import PROVIDERS, is_http_url
from dodona.net.redactor import Redactor
from dodona.net.urls import is_host, is_ip

PROVIDER_NAMES = (*PROVIDERS, "extractive", "scripted")

# Patterns are also what `dodona config schema` tells: they are JavaScript's as well as ours.
_SOURCE = r"env:[A-Za-z_][A-Za-z0-9_]*|file:.*\S.*"
_AGENT_NAME = r"[A-Za-z0-9-]{1,64}"
_NAME = r"[A-Za-z0-9_-]{1,64}"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_HEADER = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_CAPABILITY = r"http:[A-Za-z0-9.-]+(:[0-9]{1,5})?|(store|function):[A-Za-z0-9_-]+"
_ADDRESS = r"https?://.+"

_DEFAULT_TIMEOUTS = wire.Timeouts()
_DEFAULT_LIMITS = RequestLimits()
MAX_LIMIT = 10_000_000  # of anything that callers do
_KEY_HINT = (
    "Write env: and the name of a variable, or file: and the path of a file that only you may "
    "read (chmod 600)."
)


def _check_provider(name: str) -> str:
    if name not in PROVIDER_NAMES:
        names = ", ".join(PROVIDER_NAMES)
        near = did_you_mean(name, PROVIDER_NAMES)
        raise field_error("must be a provider", near or f"Providers are {names}.")
    return name


def _check_secret_source(text: str) -> str:
    if not re.fullmatch(_SOURCE, text):
        raise field_error('must be "env:NAME" or "file:PATH", never the secret itself', _KEY_HINT)
    return text


def _check_web_address(text: str) -> str:
    if not is_http_url(text):
        raise field_error(
            "must be an http(s) address of host, port and path alone",
            'Like "http://127.0.0.1:8000/v1".',
        )
    return text.rstrip("/")


def _check_agent_name(name: str) -> str:
    if not re.fullmatch(_AGENT_NAME, name):
        raise field_error("is no name for an agent", "Use letters, digits and hyphens, at most 64.")
    return name


def _check_name(name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise field_error("is no name", "Use letters, digits, _ and -, at most 64.")
    return name


def _check_variable(name: str) -> str:
    if not re.fullmatch(_VARIABLE, name):
        raise field_error("is no name of a variable", "Use letters, digits and _.")
    return name


def _check_header(name: str) -> str:
    if not re.fullmatch(_HEADER, name):
        raise field_error("is no name of a header", 'Like "Authorization".')
    return name


def _check_text_or_source(text: str) -> str:
    if text.startswith(("env:", "file:")):
        return _check_secret_source(text)
    if not text.isprintable():
        raise field_error("must be one line of text")
    if Redactor().scrub(text) != text:
        raise field_error('must be "env:NAME" or "file:PATH", never the secret itself', _KEY_HINT)
    return text


def _check_capability(text: str) -> str:
    if not re.fullmatch(_CAPABILITY, text):
        raise field_error(
            "is no capability", "Write http:HOST, store:NAME or function:NAME, and no more."
        )
    return text


def _check_engine(kind: Any) -> Any:
    if kind == "restate":
        raise field_error('must be "local": the engine restate is not there yet', "Leave it out.")
    return kind


# What belongs to an agent, whichever model answers for it.
_AGENT_ONLY_KEYS = ("tree", "system_prompt", "soul_path", "tools", "queue", "queue_limit")


def _check_fallback(fallback: AgentSection) -> AgentSection:
    own = [name for name in _AGENT_ONLY_KEYS if name in fallback.model_fields_set]
    if own:
        raise field_error(f"must not set {own[0]}", "Whoever answers, the agent's own is used.")
    return fallback


def _check_host_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not is_host(name):
            raise field_error(
                f"has {name!r:.80}, which is no host",
                "Write it as browsers send it: a name or NAME:PORT, in lower case.",
            )
    return names


def _check_addresses(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if not is_ip(text):
            raise field_error(
                f"has {text!r:.80}, which is no address", 'Like "127.0.0.1" or "::1".'
            )
    return texts


def _pattern_schema(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^({pattern})$"})


SecretSource = Annotated[str, AfterValidator(_check_secret_source), _pattern_schema(_SOURCE)]
TextOrSource = Annotated[str, AfterValidator(_check_text_or_source)]
AgentName = Annotated[str, AfterValidator(_check_agent_name), _pattern_schema(_AGENT_NAME)]
Name = Annotated[str, AfterValidator(_check_name), _pattern_schema(_NAME)]
Address = Annotated[str, AfterValidator(_check_web_address), _pattern_schema(_ADDRESS)]
ProviderName = Annotated[
    str,
    AfterValidator(_check_provider),
    WithJsonSchema({"type": "string", "enum": list(PROVIDER_NAMES)}),
]


class TimeoutsSection(Section):
    """How long a provider may keep us waiting, in seconds."""

    connect: float = Field(
        default=_DEFAULT_TIMEOUTS.connect, gt=0, description="Until the connection stands."
    )
    first_token: float = Field(
        default=_DEFAULT_TIMEOUTS.first_token,
        gt=0,
        description="Until an answer begins; some models think for long.",
    )
    gap: float = Field(
        default=_DEFAULT_TIMEOUTS.gap,
        gt=0,
        description="Between two pieces of an answer that has begun.",
    )


class AgentSection(Section):
    """Which model answers. Without `provider` it is chosen at start: see `dodona status`."""

    provider: ProviderName | None = Field(
        default=None,
        description="Who serves the model: " + ", ".join(f"`{n}`" for n in PROVIDER_NAMES) + ".",
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        description="The provider's name of the model; of `scripted`, the script's path. Its "
        "default is the provider's.",
    )
    api_key: SecretSource | None = Field(
        default=None,
        description="Where the key is: `env:NAME` or `file:PATH`. Without it, the provider's own "
        "variable, then the credential file.",
    )
    base_url: Address | None = Field(
        default=None,
        description="Where the provider is, if not at its usual place. To such a place a key is "
        "sent only when `api_key` names it.",
    )
    max_tokens: int = Field(default=4096, gt=0, description="The longest answer, in tokens.")
    temperature: float | None = Field(
        default=None,
        ge=0,
        le=2,
        description="How much answers vary. Its default is the provider's.",
    )
    tree: str | None = Field(
        default=None,
        min_length=1,
        description="The path of a `.lisp` file with the tree that a run follows, instead of the "
        "one that comes with Dodona.",
    )
    system_prompt: str | None = Field(
        default=None,
        min_length=1,
        description="What the agent is told instead of the prompt that comes with Dodona.",
    )
    soul_path: str | None = Field(
        default=None,
        min_length=1,
        description="The path of a Markdown file that says who the agent is. It comes before "
        "everything else in the prompt, and counts as soon as it is saved.",
    )
    tools: NonEmptyStrings | None = Field(
        default=None,
        max_length=200,
        description="The tools that the agent may use, by name; all of them by default.",
    )
    queue: Literal["queue", "collect", "interrupt"] = Field(
        default="queue",
        description="What becomes of messages of a session that come while one is answered: "
        "`queue` answers one after the other, `collect` answers all that wait at once, `interrupt` "
        "cancels what runs and begins with the newest.",
    )
    queue_limit: int = Field(
        default=20,
        ge=1,
        le=1000,
        description="How many messages of a session may wait; one more is refused.",
    )
    timeouts: TimeoutsSection = TimeoutsSection()
    fallback: Annotated[AgentSection, AfterValidator(_check_fallback)] | None = Field(
        default=None, description="Who answers when this one cannot."
    )


class DefaultAgentSection(AgentSection):
    """Who answers where no binding names another. Without `provider`, see `dodona status`."""

    id: AgentName = Field(
        default=DEFAULT_AGENT, description="Its name, in bindings, session keys and records."
    )


class BindingSection(Section):
    """Which agent answers whom. What is not set matches anything; one of them must be set."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": [key]}
                for key in ("channel", "account_id", "peer_id", "guild_id", "team_id")
            ]
        }
    )

    agent_id: str = Field(min_length=1, description="The agent that answers.")
    channel: str | None = Field(default=None, min_length=1, description="Like `telegram`.")
    account_id: str | None = Field(
        default=None, min_length=1, description="An account within the channel."
    )
    peer_id: str | None = Field(default=None, min_length=1, description="A person or a group.")
    guild_id: str | None = Field(
        default=None, min_length=1, description="A guild or server within the channel."
    )
    team_id: str | None = Field(default=None, min_length=1, description="A team within a guild.")


class PluginSection(Section):
    """A tool or a channel of your own, in WebAssembly. Nothing uses this section yet."""

    name: Name = Field(description="Its name, unlike those of other plugins and tools.")
    path: str = Field(min_length=1, description="The path of its `.wasm` file.")
    type: Literal["tool", "channel"] = Field(
        default="tool", description="Is it a tool, or does it bring messages of a channel?"
    )
    capabilities: Annotated[
        tuple[Annotated[str, AfterValidator(_check_capability), _pattern_schema(_CAPABILITY)], ...],
        Strict(strict=False),
    ] = Field(
        default=(),
        max_length=100,
        description="What it may reach, and nothing else: `http:HOST`, `store:NAME`, "
        "`function:NAME`.",
    )
    description: str | None = Field(
        default=None, min_length=1, description="For people; else it tells by itself."
    )


class McpServerSection(Section):
    """A server of tools, NAME is your own. Nothing uses this section yet."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["url"]}, {"required": ["command"]}]}
    )

    url: Address | None = Field(
        default=None, description="Where it is; this or `command` must be set."
    )
    headers: Mapping[
        Annotated[str, AfterValidator(_check_header), _pattern_schema(_HEADER)], TextOrSource
    ] = Field(
        default={},
        description="What is sent along to `url`. A secret is named: `env:NAME` or `file:PATH`.",
    )
    command: str | None = Field(
        default=None, min_length=1, description="The program that is started."
    )
    args: NonEmptyStrings = Field(
        default=(), max_length=200, description="What `command` is called with."
    )
    env: Mapping[
        Annotated[str, AfterValidator(_check_variable), _pattern_schema(_VARIABLE)], TextOrSource
    ] = Field(
        default={},
        description="Variables for `command`. A secret is named: `env:NAME` or `file:PATH`.",
    )
    timeout_seconds: float = Field(
        default=60.0, gt=0, le=3600, description="How long a call may take."
    )


class EngineSection(Section):
    """What hands out runs and wakes them."""

    kind: Annotated[Literal["local"], BeforeValidator(_check_engine)] = Field(
        default="local", description="`local`: this process."
    )


class StoreSection(Section):
    """Where everything is kept."""

    url: str | None = Field(
        default=None,
        min_length=1,
        description="A path, `sqlite:///PATH` or `postgresql://USER@HOST/NAME`. By default "
        "`dodona.db` in Dodona's folder.",
    )
    password: SecretSource | None = Field(
        default=None, description="Where PostgreSQL's password is: `env:NAME` or `file:PATH`."
    )
    durability: Literal["full", "normal"] = Field(
        default="full",
        description="`full`: what was acknowledged survives a power loss. `normal`: it survives "
        "the end of the process, and writes are cheaper.",
    )


class GatewaySection(Section):
    """Where `dodona up` listens, to whom, and how much callers may do.

    What is not an address of this machine alone needs tokens: see the guide on letting others in.
    The operator, who comes from this machine without a token, has no rate.
    """

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="The address to listen at. One that others can reach needs a token.",
    )
    port: int = Field(
        default=7200, ge=0, le=65535, description="The port; 0 takes one that is free."
    )
    hosts: Annotated[NonEmptyStrings, AfterValidator(_check_host_names)] = Field(
        default=(),
        max_length=100,
        description="Names by which others come, as browsers send them: `NAME`, or `NAME:PORT`. "
        "Whoever comes by one of them needs a token.",
    )
    proxies: Annotated[NonEmptyStrings, AfterValidator(_check_addresses)] = Field(
        default=(),
        max_length=100,
        description="Addresses of your proxies. They are believed when they say in "
        "`X-Forwarded-For` for whom they ask, so that limits count the right address.",
    )
    token_rate: int = Field(
        default=_DEFAULT_LIMITS.token_rate,
        ge=1,
        le=MAX_LIMIT,
        description="Requests of a token, a minute.",
    )
    address_rate: int = Field(
        default=_DEFAULT_LIMITS.address_rate,
        ge=1,
        le=MAX_LIMIT,
        description="Requests of an address, a minute.",
    )
    connections: int = Field(
        default=_DEFAULT_LIMITS.connections,
        ge=1,
        le=MAX_LIMIT,
        description="Connections of all together; never more than this process may open files.",
    )
    address_connections: int = Field(
        default=_DEFAULT_LIMITS.address_connections,
        ge=1,
        le=MAX_LIMIT,
        description="Connections of an address that is neither this machine nor a proxy.",
    )
    in_flight: int = Field(
        default=_DEFAULT_LIMITS.in_flight,
        ge=1,
        le=MAX_LIMIT,
        description="Requests of all together that are answered at once, streams among them.",
    )
    user_in_flight: int = Field(
        default=_DEFAULT_LIMITS.user_in_flight,
        ge=1,
        le=MAX_LIMIT,
        description="Requests of a user that are answered at once.",
    )
    user_runs: int = Field(
        default=_DEFAULT_LIMITS.user_runs,
        ge=1,
        le=MAX_LIMIT,
        description="Runs of a user that wait or go on.",
    )
    auth_failures: int = Field(
        default=_DEFAULT_LIMITS.auth_failures,
        ge=1,
        le=MAX_LIMIT,
        description="Wrong tokens of an address, a minute; then none that is new is looked at.",
    )
    cooldown: float = Field(
        default=_DEFAULT_LIMITS.cooldown,
        gt=0,
        le=86_400,
        description="For so many seconds.",
    )


class AuditSection(Section):
    """The log of who was turned away, and who changed what."""

    kept_days: int = Field(
        default=365, ge=1, le=36_500, description="After so long entries are deleted."
    )


class VaultSection(Section):
    """Where the notes are that answers come from."""

    path: str | None = Field(
        default=None,
        min_length=1,
        description="A folder of Markdown files, for projects that name none. By default `vault` "
        "in Dodona's folder.",
    )


class CodeSection(Section):
    """Where the code is that answers come from."""

    paths: NonEmptyStrings = Field(
        default=(),
        max_length=20,
        description="Folders of code, for the project `default` unless it names its own. Their "
        "`.gitignore` is obeyed.",
    )
    max_file_kb: int = Field(
        default=1024, ge=1, le=51_200, description="Larger files are not indexed."
    )
    embeddings: bool = Field(
        default=False,
        description="Also rank by meaning. Needs `pip install dodona[embeddings]` and a model: see "
        "the guide on code.",
    )


class WebSection(Section):
    """What an agent may do on the web."""

    search: Literal["none", "searxng", "brave", "duckduckgo"] = Field(
        default="none", description="Who answers web_search."
    )
    searxng_url: Address | None = Field(
        default=None, description="Where your SearXNG is; it may be on this machine."
    )
    brave_api_key: SecretSource | None = Field(
        default=None,
        description="Where the key of Brave's search is: `env:NAME` or `file:PATH`. Without it, "
        "`BRAVE_API_KEY`.",
    )
    fetch: bool = Field(default=True, description="May pages be fetched at all?")
    timeout_seconds: float = Field(
        default=20.0, gt=0, le=120, description="How long a page or a search may take."
    )
    max_kb: int = Field(
        default=2048, ge=1, le=51_200, description="Of a page no more than this is read."
    )
    robots: bool = Field(default=True, description="Leave pages alone whose robots.txt asks so.")
    allow: NonEmptyStrings = Field(
        default=(),
        max_length=100,
        description="Hosts, or `host:port`, that may be fetched though they are on this machine or "
        "in your own network.",
    )
    hold_effects: bool = Field(
        default=True,
        description="After text from the web has entered a run: ask before calls that cannot be "
        "taken back, and fetch only addresses that you typed or a search returned.",
    )


class LibrarianSection(Section):
    """The agent that the Oracle hands work to."""

    summarise: bool = Field(
        default=True,
        description="Let it sum up tool results that are too large to read as they are.",
    )


class SubscribersSection(Section):
    """Who makes notices of events."""

    folder: str | None = Field(
        default=None,
        description="Where your own are, beside the shipped ones; `subscribers` in Dodona's folder "
        "by default.",
    )


class RulesSection(Section):
    """What shall happen when something happens."""

    folder: str | None = Field(
        default=None,
        description="Where your own are, beside the shipped ones; `rules` in Dodona's folder by "
        "default. Trees that they run are in `trees` beside it.",
    )
    packs: str | None = Field(
        default=None,
        description="Where packs of rules are; `packs` in Dodona's folder by default.",
    )


class ApprovalsSection(Section):
    """Calls of tools that a person must allow."""

    timeout_seconds: float = Field(
        default=600.0,
        gt=0,
        le=604_800,
        description="After so long without an answer a call is refused.",
    )


class ContextSection(Section):
    """What a conversation remembers."""

    idle_minutes: int = Field(
        default=1440,
        ge=1,
        le=525_600,
        description="After so long without a question the next one begins a new conversation.",
    )
    token_budget: int = Field(
        default=DEFAULT_TOKEN_BUDGET,
        ge=TOKEN_BUDGET_BOUNDS[0],
        le=TOKEN_BUDGET_BOUNDS[1],
        description="How many tokens of what was said before a question takes along.",
    )
    compress: bool = Field(
        default=True,
        description="Sum up older exchanges when the budget is nearly used. They stay in the tree.",
    )


class BudgetSection(Section):
    """The most that may be spent; without a number there is no ceiling.

    A plain number in its place, as in `daily = 500000`, is `tokens`.
    """

    shorthand_key: ClassVar[str] = "tokens"

    tokens: int | None = Field(
        default=None, ge=0, le=MAX_CEILING_TOKENS, description="Read and written together."
    )
    usd: float | None = Field(
        default=None,
        ge=0,
        le=MAX_CEILING_USD,
        description="US dollars. Models whose price nobody knows are not called then.",
    )


class BudgetsSection(Section):
    """Ceilings that no call may pass. Days and months are those of UTC, over all users."""

    session: BudgetSection = Field(
        default=BudgetSection(), description="Each session, from its beginning."
    )
    agent: BudgetSection = Field(
        default=BudgetSection(), description="Each agent, from the beginning."
    )
    user: BudgetSection = Field(
        default=BudgetSection(), description="Each user, from the beginning."
    )
    daily: BudgetSection = Field(default=BudgetSection(), description="All of a day.")
    monthly: BudgetSection = Field(default=BudgetSection(), description="All of a month.")


class PriceSection(Section):
    """US dollars per million tokens. NAME is a model, or a provider and its model: `x/y`.

    These come before the prices that Dodona knows.
    """

    input: float = Field(ge=0, description="For what the model reads.")
    output: float = Field(ge=0, description="For what it writes.")
    cache_read: float | None = Field(
        default=None, ge=0, description="For what it reads from its cache; else as `input`."
    )
    cache_write: float | None = Field(
        default=None, ge=0, description="For what it puts there; else as `input`."
    )


class LoggingSection(Section):
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least that is written."
    )
    format: Literal["auto", "text", "json"] = Field(
        default="auto", description="`auto` is text on a terminal, JSON elsewhere."
    )


class Settings(Section):
    agent: DefaultAgentSection = Field(
        default=DefaultAgentSection(), description="The agent that answers by default."
    )
    agents: Mapping[AgentName, AgentSection] = Field(
        default={}, description="Other agents, by name."
    )
    bindings: Annotated[tuple[BindingSection, ...], Strict(strict=False)] = Field(
        default=(), max_length=200_000, description="Who is answered by which agent."
    )
    plugins: Annotated[tuple[PluginSection, ...], Strict(strict=False)] = Field(
        default=(), max_length=1000, description="Tools and channels of your own."
    )
    mcp: Mapping[Name, McpServerSection] = Field(
        default={}, description="Servers of tools, by name."
    )
    engine: EngineSection = EngineSection()
    store: StoreSection = StoreSection()
    gateway: GatewaySection = GatewaySection()
    audit: AuditSection = AuditSection()
    vault: VaultSection = VaultSection()
    code: CodeSection = CodeSection()
    web: WebSection = WebSection()
    librarian: LibrarianSection = LibrarianSection()
    context: ContextSection = ContextSection()
    subscribers: SubscribersSection = SubscribersSection()
    rules: RulesSection = RulesSection()
    approvals: ApprovalsSection = ApprovalsSection()
    budgets: BudgetsSection = BudgetsSection()
    prices: Mapping[str, PriceSection] = Field(default={}, description="Prices, by model.")
    log: LoggingSection = LoggingSection()
