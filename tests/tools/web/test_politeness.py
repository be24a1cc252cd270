"""Turns at hosts: one at a time, not too often, and only where we are welcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from dodona.core.errors import AccessDenied, ToolFailed
from dodona.net.egress_guard import GuardedHttp
from dodona.net.urls import parse_url
from dodona.tools.web import politeness as module
from dodona.tools.web.politeness import PolitenessPolicy
from tests.clock import Clock
from tests.tools.web.site import Site, answer, names, redirect


class Watch:
    """A clock that stands still unless somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
async def http(site: Site) -> AsyncIterator[GuardedHttp]:
    resolver = names(other_test=[["127.0.0.1"]], private_test=[["127.0.0.1"]])
    exempt = [f"site.test:{site.port}", f"other.test:{site.port}"]
    async with GuardedHttp("Test/1", exempt_hosts=exempt, resolve=resolver) as gate:
        yield gate


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def manners(http: GuardedHttp, watch: Watch) -> PolitenessPolicy:
    return PolitenessPolicy(http, sleep=watch.sleep, clock=watch)


def robots(text: str) -> bytes:
    return answer(text, kind="text/plain")


async def visit(manners: PolitenessPolicy, url: str) -> None:
    async with manners.request_slot(parse_url(url)):
        pass


async def test_robots_are_asked_once_an_hour(
    site: Site, manners: PolitenessPolicy, watch: Watch
) -> None:
    """However many pages are fetched; a change is seen after that."""
    site.pages["/robots.txt"] = robots("User-agent: *\nDisallow: /secret")
    for page in ("/a", "/b"):
        await visit(manners, site.url(page))
    with pytest.raises(AccessDenied) as caught:
        await visit(manners, site.url("/secret/x"))
    assert str(caught.value) == (
        "robots.txt of site.test does not allow fetching this page. "
        "The user can open it in a browser."
    )
    assert site.paths() == ["/robots.txt"]
    site.pages["/robots.txt"] = robots("")
    watch.now += module.ROBOTS_CACHE_SECONDS
    await visit(manners, site.url("/secret/x"))
    assert site.paths() == ["/robots.txt", "/robots.txt"]


@pytest.mark.parametrize("status", ["404 Not Found", "403 Forbidden", "401 No", "410 Gone"])
async def test_a_host_without_rules_has_none(
    site: Site, manners: PolitenessPolicy, status: str
) -> None:
    """Whether it has no file or shows it to nobody."""
    site.pages["/robots.txt"] = answer("User-agent: *\nDisallow: /", status)
    await visit(manners, site.url("/a"))


@pytest.mark.parametrize("status", ["500 Broken", "503 Busy", "429 Too Many"])
async def test_a_host_in_trouble_is_left_alone(
    site: Site, manners: PolitenessPolicy, watch: Watch, status: str
) -> None:
    """For a minute; then it is asked again."""
    site.pages["/robots.txt"] = answer("", status)
    for _ in range(2):
        with pytest.raises(ToolFailed, match=r"robots\.txt of site\.test is unavailable"):
            await visit(manners, site.url("/a"))
    assert len(site.asked) == 1
    site.pages["/robots.txt"] = robots("")
    watch.now += module.ROBOTS_RETRY_SECONDS
    await visit(manners, site.url("/a"))


async def test_rules_may_be_elsewhere(site: Site, manners: PolitenessPolicy) -> None:
    """On another host too. What leads into a private network, or in a circle, is handled."""
    other = site.url("/their-robots", host="other.test")
    site.pages["/robots.txt"] = redirect(other)
    site.pages["/their-robots"] = robots("User-agent: *\nDisallow: /a")
    with pytest.raises(AccessDenied, match=r"robots\.txt of site\.test"):
        await visit(manners, site.url("/a"))


async def test_rules_in_a_private_network_are_none(site: Site, manners: PolitenessPolicy) -> None:
    """Nothing is asked there."""
    site.pages["/robots.txt"] = redirect(site.url("/x", host="private.test"))
    await visit(manners, site.url("/a"))
    assert site.paths() == ["/robots.txt"]


async def test_there_is_a_pause_between_two_visits(
    manners: PolitenessPolicy, site: Site, watch: Watch
) -> None:
    """As long as the host wants, or a second; another host is not concerned."""
    await visit(manners, site.url("/a"))
    await visit(manners, site.url("/b"))
    assert watch.slept == [module.MIN_INTERVAL_SECONDS]
    site.pages["/robots.txt"] = robots("User-agent: *\nCrawl-delay: 4")
    await visit(manners, site.url("/a", host="other.test"))
    await visit(manners, site.url("/b", host="other.test"))
    assert watch.slept == [module.MIN_INTERVAL_SECONDS, 4.0]
    watch.now += 60
    await visit(manners, site.url("/c", host="other.test"))
    assert len(watch.slept) == 2


async def test_nobody_waits_for_long(manners: PolitenessPolicy, site: Site, watch: Watch) -> None:
    """It is told when to ask again."""
    site.pages["/robots.txt"] = robots("User-agent: *\nCrawl-delay: 90")
    await visit(manners, site.url("/a"))
    with pytest.raises(ToolFailed, match="Retry in 90 seconds"):
        await visit(manners, site.url("/b"))
    assert watch.slept == []


async def test_a_host_is_asked_one_thing_at_a_time(
    manners: PolitenessPolicy, http: GuardedHttp, site: Site
) -> None:
    """Many ask at once; the file is read once, and the pages one after the other."""
    site.pages["/robots.txt"] = robots("User-agent: *\nAllow: /")

    async def slow(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.01)
        writer.write(answer("x"))

    site.pages["/a"] = slow
    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(http.get(site.url("/a"), request_context=manners.request_slot))
    assert sorted(site.paths()) == ["/a"] * 6 + ["/robots.txt"]
    assert site.busiest == 1


async def test_a_call_does_not_wait_behind_others_for_ever(
    manners: PolitenessPolicy, site: Site, clock: Clock
) -> None:
    """A host that many calls wait for is reported as busy, and the others keep their turn."""
    async with manners.request_slot(parse_url(site.url("/a"))):
        waiting = asyncio.create_task(visit(manners, site.url("/b")))
        await asyncio.sleep(0)
        clock.advance(module.MAX_QUEUE_SECONDS + 1)
        with pytest.raises(ToolFailed) as caught:
            await waiting
    assert str(caught.value) == (
        "site.test is busy with earlier requests. Try again later, or read another page."
    )
    await visit(manners, site.url("/c"))


async def test_who_gives_up_does_not_hold_the_others_up(
    manners: PolitenessPolicy, site: Site
) -> None:
    """Cancelled while it reads the file, or while it waits: the next one takes over."""
    begun = asyncio.Event()

    async def silent(writer: asyncio.StreamWriter) -> None:
        begun.set()
        await asyncio.Event().wait()

    site.pages["/robots.txt"] = silent
    first = asyncio.create_task(visit(manners, site.url("/a")))
    await asyncio.wait_for(begun.wait(), 30)
    second = asyncio.create_task(visit(manners, site.url("/a")))
    await asyncio.sleep(0)
    site.pages["/robots.txt"] = robots("")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await asyncio.wait_for(second, 30)


async def test_robots_can_be_ignored(http: GuardedHttp, site: Site, watch: Watch) -> None:
    """By a setting; the pauses stay."""
    site.pages["/robots.txt"] = robots("User-agent: *\nDisallow: /")
    manners = PolitenessPolicy(http, obey_robots=False, sleep=watch.sleep, clock=watch)
    await visit(manners, site.url("/a"))
    await visit(manners, site.url("/b"))
    assert site.asked == []
    assert watch.slept == [module.MIN_INTERVAL_SECONDS]


async def test_not_every_host_is_remembered(http: GuardedHttp) -> None:
    """Those that were not visited for longest are forgotten."""
    manners = PolitenessPolicy(http, obey_robots=False)
    for number in range(module.MAX_HOSTS + 50):
        await visit(manners, f"http://h{number}.example/")
    assert len(manners._hosts) == module.MAX_HOSTS
    assert "http://h0.example" not in manners._hosts
