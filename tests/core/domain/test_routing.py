"""Which agent answers: precedence, ties, and how long it takes to know."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.app.agents.registry import make_router
from dodona.app.config.config import load_config
from dodona.core.domain.routing import BINDING_FIELDS, Binding, LiveRouter, Route, Router
from dodona.core.errors import ConfigError, SourceLocation

FULL = {"channel": "c", "account": "a", "peer": "p", "guild": "g", "team": "t"}

# Few values, so that much matches.
_values = st.none() | st.sampled_from("xyz")
_fields = st.fixed_dictionaries(dict.fromkeys(BINDING_FIELDS, _values))
_bindings = st.lists(_fields.filter(lambda f: any(f.values())), max_size=40).map(
    lambda rows: [Binding(agent_id=f"agent-{n}", **row) for n, row in enumerate(rows)]
)


def binding(agent_id: str, fields: Mapping[str, Any]) -> Binding:
    return Binding(agent_id=agent_id, **fields)


def reference(bindings: list[Binding], message: dict[str, str | None]) -> str:
    """The rules once more, as they are told: look at all of them, and sort."""
    matching = [
        (BINDING_FIELDS.index(binding.fields[0]), -len(binding.fields), place)
        for place, binding in enumerate(bindings)
        if all(getattr(binding, name) == message[name] for name in binding.fields)
    ]
    return bindings[min(matching)[2]].agent_id if matching else "nobody"


@given(bindings=_bindings, message=_fields)
def test_the_index_finds_what_a_search_finds(
    bindings: list[Binding], message: dict[str, str | None]
) -> None:
    assert Router(bindings, "nobody").resolve(**message).agent_id == reference(bindings, message)


@given(bindings=_bindings, message=_fields)
def test_candidates_begin_with_the_winner(
    bindings: list[Binding], message: dict[str, str | None]
) -> None:
    """All of them match, and each is the best of its rank."""
    router = Router(bindings)
    found = list(router.candidates(**message))
    assert (found or [None])[0] is router.resolve(**message).binding
    ranks = [(BINDING_FIELDS.index(each.fields[0]), -len(each.fields)) for each in found]
    assert ranks == sorted(set(ranks))
    assert all(getattr(each, n) == message[n] for each in found for n in each.fields)


@pytest.mark.parametrize("lower", range(1, len(BINDING_FIELDS)))
def test_a_higher_field_comes_before_any_number_of_lower_ones(lower: int) -> None:
    """peer, guild, team, account, channel: the higher one wins against all below it together."""
    alone = binding("alone", {BINDING_FIELDS[lower - 1]: FULL[BINDING_FIELDS[lower - 1]]})
    many = binding("many", {name: FULL[name] for name in BINDING_FIELDS[lower:]})
    found = Router([many, alone]).resolve(**FULL)
    assert (found.agent_id, found.level) == ("alone", BINDING_FIELDS[lower - 1])


def test_ties_are_decided_by_more_fields_and_then_by_order() -> None:
    bindings = [
        Binding(agent_id="peer-and-team", peer="p", team="t"),
        Binding(agent_id="peer-and-channel", peer="p", channel="c"),
        Binding(agent_id="three", peer="p", channel="c", account="a"),
        Binding(agent_id="the same again", peer="p", channel="c", account="a"),
    ]
    assert Router(bindings).resolve(**FULL).agent_id == "three"
    assert Router(bindings[:2]).resolve(**FULL).agent_id == "peer-and-team"
    assert Router(bindings[1::-1]).resolve(**FULL).agent_id == "peer-and-channel"


def test_what_a_message_does_not_say_matches_no_binding_that_asks_for_it() -> None:
    router = Router([Binding(agent_id="main", peer="main")], "oracle")
    assert router.resolve(channel="c", account="a") == Route("oracle")
    assert router.resolve(channel="c", account="a").level == "default"
    assert Router().resolve(**FULL).explanation == (
        "no binding matches, so the default agent answers."
    )


def test_a_route_tells_why() -> None:
    binding = Binding(
        agent_id="work", channel="c", peer="p", where=SourceLocation("dodona.toml", 7)
    )
    assert Router([binding]).resolve(**FULL).explanation == (
        "the binding (dodona.toml:7) for peer p and channel c matches."
    )


def test_a_binding_that_sets_nothing_is_refused() -> None:
    """It would match everything, as the default agent does."""
    with pytest.raises(ConfigError) as caught:
        Router([Binding(agent_id="all", where=SourceLocation("dodona.toml", 3))])
    assert str(caught.value) == "dodona.toml:3: a binding must set a field. Like: channel = …"


def test_another_router_can_take_its_place() -> None:
    routing = LiveRouter(Router((), "old"))
    assert routing.current.resolve(channel="c").agent_id == "old"
    routing.replace(Router((), "new"))
    assert routing.current.resolve(channel="c").agent_id == "new"


def test_a_hundred_thousand_bindings_resolve_in_microseconds() -> None:
    """With every combination of fields in use, and messages that match the last rank or none."""
    masks = [mask for mask in product((True, False), repeat=len(BINDING_FIELDS)) if any(mask)]
    router = Router(
        binding(
            "agent",
            {
                name: f"{name}-{number}"
                for name, is_set in zip(BINDING_FIELDS, masks[number % len(masks)], strict=True)
                if is_set
            },
        )
        for number in range(100_000)
    )
    message = dict.fromkeys(BINDING_FIELDS, "unknown")
    best = min(_seconds(router, message) for _ in range(20))
    assert best < 200e-6  # looking at each binding takes milliseconds


def _seconds(router: Router, message: dict[str, str]) -> float:
    start = perf_counter()
    for _ in range(200):
        router.resolve(**message)
    return (perf_counter() - start) / 200


def test_the_settings_make_a_router(tmp_path: Path) -> None:
    """With the line of each binding, and the name of the unnamed agent as the default."""
    file = tmp_path / "dodona.toml"
    file.write_text(
        '[agent]\nid = "personal"\n\n[agents.work]\n\n'
        '[[bindings]]\nagent_id = "work"\nchannel = "slack"\naccount_id = "acme"\n\n'
        '[[bindings]]\nagent_id = "personal"\npeer_id = "42"\nguild_id = "g"\nteam_id = "t"\n'
    )
    router = make_router(load_config({"DODONA_HOME": str(tmp_path)}, file))
    assert router.default_agent == "personal"
    assert router.bindings == (
        Binding(
            agent_id="work", channel="slack", account="acme", where=SourceLocation(str(file), 6)
        ),
        Binding(
            agent_id="personal", peer="42", guild="g", team="t", where=SourceLocation(str(file), 11)
        ),
    )
