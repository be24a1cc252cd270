"""What can be set, section by section. The reference page and every check are made from this.

A default is what zero configuration uses. A setting needs a user who wants both values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema

from dodona.core.domain.agents import DEFAULT_AGENT
from dodona.core.domain.conversations.contexts import TOKEN_BUDGET, TOKEN_BUDGET_BOUNDS
from dodona.core.errors import did_you_mean
from dodona.documents import Section, Texts, wrong
from dodona.gateway.settings import Limits
from dodona.metering.ceilings import MOST_TOKENS, MOST_USD
from dodona.models import wire
from dodona.models.providers import PROVIDERS, is_address
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

_PATIENCE = wire.Timeouts()
_LIMITS = Limits()
MOST = 10_000_000  # of anything that callers do
_KEY_HINT = (
    "Write env: and the name of a variable, or file: and the path of a file that only you may "
    "read (chmod 600)."
)


def _known_provider(name: str) -> str:
    if name not in PROVIDER_NAMES:
        names = ", ".join(PROVIDER_NAMES)
        near = did_you_mean(name, PROVIDER_NAMES)
        raise wrong("must be a provider", near or f"Providers are {names}.")
    return name


def _secret_source(text: str) -> str:
    if not re.fullmatch(_SOURCE, text):
        raise wrong('must be "env:NAME" or "file:PATH", never the secret itself', _KEY_HINT)
    return text


def _web_address(text: str) -> str:
    if not is_address(text):
        raise wrong(
            "must be an http(s) address of host, port and path alone",
            'Like "http://127.0.0.1:8000/v1".',
        )
    return text.rstrip("/")


def _agent_name(name: str) -> str:
    if not re.fullmatch(_AGENT_NAME, name):
        raise wrong("is no name for an agent", "Use letters, digits and hyphens, at most 64.")
    return name


def _name(name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise wrong("is no name", "Use letters, digits, _ and -, at most 64.")
    return name


def _variable(name: str) -> str:
    if not re.fullmatch(_VARIABLE, name):
        raise wrong("is no name of a variable", "Use letters, digits and _.")
    return name


def _header(name: str) -> str:
    if not re.fullmatch(_HEADER, name):
        raise wrong("is no name of a header", 'Like "Authorization".')
    return name


def _text_or_source(text: str) -> str:
    if text.startswith(("env:", "file:")):
        return _secret_source(text)
    if not text.isprintable():
        raise wrong("must be one line of text")
    if Redactor().scrub(text) != text:
        raise wrong('must be "env:NAME" or "file:PATH", never the secret itself', _KEY_HINT)
    return text


def _capability(text: str) -> str:
    if not re.fullmatch(_CAPABILITY, text):
        raise wrong(
            "is no capability", "Write http:HOST, store:NAME or function:NAME, and no more."
        )
    return text


def _engine_there(kind: Any) -> Any:
    if kind == "restate":
        raise wrong('must be "local": the engine restate is not there yet', "Leave it out.")
    return kind


# What belongs to an agent, whichever model answers for it.
_OWN = ("tree", "system_prompt", "soul_path", "tools", "queue", "queue_limit")


def _only_a_model(fallback: Agent) -> Agent:
    own = [name for name in _OWN if name in fallback.model_fields_set]
    if own:
        raise wrong(f"must not set {own[0]}", "Whoever answers, the agent's own is used.")
    return fallback


def _host_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not is_host(name):
            raise wrong(
                f"has {name!r:.80}, which is no host",
                "Write it as browsers send it: a name or NAME:PORT, in lower case.",
            )
    return names


def _addresses(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if not is_ip(text):
            raise wrong(f"has {text!r:.80}, which is no address", 'Like "127.0.0.1" or "::1".')
    return texts


def _like(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^({pattern})$"})


SecretSource = Annotated[str, AfterValidator(_secret_source), _like(_SOURCE)]
TextOrSource = Annotated[str, AfterValidator(_text_or_source)]
AgentName = Annotated[str, AfterValidator(_agent_name), _like(_AGENT_NAME)]
Name = Annotated[str, AfterValidator(_name), _like(_NAME)]
Address = Annotated[str, AfterValidator(_web_address), _like(_ADDRESS)]
ProviderName = Annotated[
    str,
    AfterValidator(_known_provider),
    WithJsonSchema({"type": "string", "enum": list(PROVIDER_NAMES)}),
]


class Timeouts(Section):
    """How long a provider may keep us waiting, in seconds."""

    connect: float = Field(
        default=_PATIENCE.connect, gt=0, description="Until the connection stands."
    )
    first_token: float = Field(
        default=_PATIENCE.first_token,
        gt=0,
        description="Until an answer begins; some models think for long.",
    )
    gap: float = Field(
        default=_PATIENCE.gap, gt=0, description="Between two pieces of an answer that has begun."
    )


class Agent(Section):
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
    tools: Texts | None = Field(
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
    timeouts: Timeouts = Timeouts()
    fallback: Annotated[Agent, AfterValidator(_only_a_model)] | None = Field(
        default=None, description="Who answers when this one cannot."
    )


class DefaultAgent(Agent):
    """Who answers where no binding names another. Without `provider`, see `dodona status`."""

    id: AgentName = Field(
        default=DEFAULT_AGENT, description="Its name, in bindings, session keys and records."
    )


class Binding(Section):
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


class Plugin(Section):
    """A tool or a channel of your own, in WebAssembly. Nothing uses this section yet."""

    name: Name = Field(description="Its name, unlike those of other plugins and tools.")
    path: str = Field(min_length=1, description="The path of its `.wasm` file.")
    type: Literal["tool", "channel"] = Field(
        default="tool", description="Is it a tool, or does it bring messages of a channel?"
    )
    capabilities: Annotated[
        tuple[Annotated[str, AfterValidator(_capability), _like(_CAPABILITY)], ...],
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


class McpServer(Section):
    """A server of tools, NAME is your own. Nothing uses this section yet."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["url"]}, {"required": ["command"]}]}
    )

    url: Address | None = Field(
        default=None, description="Where it is; this or `command` must be set."
    )
    headers: Mapping[Annotated[str, AfterValidator(_header), _like(_HEADER)], TextOrSource] = Field(
        default={},
        description="What is sent along to `url`. A secret is named: `env:NAME` or `file:PATH`.",
    )
    command: str | None = Field(
        default=None, min_length=1, description="The program that is started."
    )
    args: Texts = Field(default=(), max_length=200, description="What `command` is called with.")
    env: Mapping[Annotated[str, AfterValidator(_variable), _like(_VARIABLE)], TextOrSource] = Field(
        default={},
        description="Variables for `command`. A secret is named: `env:NAME` or `file:PATH`.",
    )
    timeout_seconds: float = Field(
        default=60.0, gt=0, le=3600, description="How long a call may take."
    )


class Engine(Section):
    """What hands out runs and wakes them."""

    kind: Annotated[Literal["local"], BeforeValidator(_engine_there)] = Field(
        default="local", description="`local`: this process."
    )


class Store(Section):
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


class Gateway(Section):
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
    hosts: Annotated[Texts, AfterValidator(_host_names)] = Field(
        default=(),
        max_length=100,
        description="Names by which others come, as browsers send them: `NAME`, or `NAME:PORT`. "
        "Whoever comes by one of them needs a token.",
    )
    proxies: Annotated[Texts, AfterValidator(_addresses)] = Field(
        default=(),
        max_length=100,
        description="Addresses of your proxies. They are believed when they say in "
        "`X-Forwarded-For` for whom they ask, so that limits count the right address.",
    )
    token_rate: int = Field(
        default=_LIMITS.token_rate, ge=1, le=MOST, description="Requests of a token, a minute."
    )
    address_rate: int = Field(
        default=_LIMITS.address_rate,
        ge=1,
        le=MOST,
        description="Requests of an address, a minute.",
    )
    connections: int = Field(
        default=_LIMITS.connections,
        ge=1,
        le=MOST,
        description="Connections of all together; never more than this process may open files.",
    )
    address_connections: int = Field(
        default=_LIMITS.address_connections,
        ge=1,
        le=MOST,
        description="Connections of an address that is neither this machine nor a proxy.",
    )
    in_flight: int = Field(
        default=_LIMITS.in_flight,
        ge=1,
        le=MOST,
        description="Requests of all together that are answered at once, streams among them.",
    )
    user_in_flight: int = Field(
        default=_LIMITS.user_in_flight,
        ge=1,
        le=MOST,
        description="Requests of a user that are answered at once.",
    )
    user_runs: int = Field(
        default=_LIMITS.user_runs,
        ge=1,
        le=MOST,
        description="Runs of a user that wait or go on.",
    )
    auth_failures: int = Field(
        default=_LIMITS.auth_failures,
        ge=1,
        le=MOST,
        description="Wrong tokens of an address, a minute; then none that is new is looked at.",
    )
    cooldown: float = Field(
        default=_LIMITS.cooldown,
        gt=0,
        le=86_400,
        description="For so many seconds.",
    )


class Audit(Section):
    """The log of who was turned away, and who changed what."""

    kept_days: int = Field(
        default=365, ge=1, le=36_500, description="After so long entries are deleted."
    )


class Vault(Section):
    """Where the notes are that answers come from."""

    path: str | None = Field(
        default=None,
        min_length=1,
        description="A folder of Markdown files, for projects that name none. By default `vault` "
        "in Dodona's folder.",
    )


class Code(Section):
    """Where the code is that answers come from."""

    paths: Texts = Field(
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


class Web(Section):
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
    allow: Texts = Field(
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


class Librarian(Section):
    """The agent that the Oracle hands work to."""

    summarise: bool = Field(
        default=True,
        description="Let it sum up tool results that are too large to read as they are.",
    )


class Subscribers(Section):
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


class Approvals(Section):
    """Calls of tools that a person must allow."""

    timeout_seconds: float = Field(
        default=600.0,
        gt=0,
        le=604_800,
        description="After so long without an answer a call is refused.",
    )


class Context(Section):
    """What a conversation remembers."""

    idle_minutes: int = Field(
        default=1440,
        ge=1,
        le=525_600,
        description="After so long without a question the next one begins a new conversation.",
    )
    token_budget: int = Field(
        default=TOKEN_BUDGET,
        ge=TOKEN_BUDGET_BOUNDS[0],
        le=TOKEN_BUDGET_BOUNDS[1],
        description="How many tokens of what was said before a question takes along.",
    )
    compress: bool = Field(
        default=True,
        description="Sum up older exchanges when the budget is nearly used. They stay in the tree.",
    )


class Budget(Section):
    """The most that may be spent; without a number there is no ceiling.

    A plain number in its place, as in `daily = 500000`, is `tokens`.
    """

    number_is: ClassVar[str] = "tokens"

    tokens: int | None = Field(
        default=None, ge=0, le=MOST_TOKENS, description="Read and written together."
    )
    usd: float | None = Field(
        default=None,
        ge=0,
        le=MOST_USD,
        description="US dollars. Models whose price nobody knows are not called then.",
    )


class Budgets(Section):
    """Ceilings that no call may pass. Days and months are those of UTC, over all users."""

    session: Budget = Field(default=Budget(), description="Each session, from its beginning.")
    agent: Budget = Field(default=Budget(), description="Each agent, from the beginning.")
    user: Budget = Field(default=Budget(), description="Each user, from the beginning.")
    daily: Budget = Field(default=Budget(), description="All of a day.")
    monthly: Budget = Field(default=Budget(), description="All of a month.")


class Price(Section):
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


class Log(Section):
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least that is written."
    )
    format: Literal["auto", "text", "json"] = Field(
        default="auto", description="`auto` is text on a terminal, JSON elsewhere."
    )


class Settings(Section):
    agent: DefaultAgent = Field(
        default=DefaultAgent(), description="The agent that answers by default."
    )
    agents: Mapping[AgentName, Agent] = Field(default={}, description="Other agents, by name.")
    bindings: Annotated[tuple[Binding, ...], Strict(strict=False)] = Field(
        default=(), max_length=200_000, description="Who is answered by which agent."
    )
    plugins: Annotated[tuple[Plugin, ...], Strict(strict=False)] = Field(
        default=(), max_length=1000, description="Tools and channels of your own."
    )
    mcp: Mapping[Name, McpServer] = Field(default={}, description="Servers of tools, by name.")
    engine: Engine = Engine()
    store: Store = Store()
    gateway: Gateway = Gateway()
    audit: Audit = Audit()
    vault: Vault = Vault()
    code: Code = Code()
    web: Web = Web()
    librarian: Librarian = Librarian()
    context: Context = Context()
    subscribers: Subscribers = Subscribers()
    rules: RulesSection = RulesSection()
    approvals: Approvals = Approvals()
    budgets: Budgets = Budgets()
    prices: Mapping[str, Price] = Field(default={}, description="Prices, by model.")
    log: Log = Log()
