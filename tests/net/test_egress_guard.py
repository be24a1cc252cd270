"""The gate: where a model's request may go, and how much may come back."""

from __future__ import annotations

import asyncio
import gzip
import logging
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dodona.core.errors import AccessDenied, ConfigError, DodonaError, ToolFailed, ToolRetry
from dodona.net.dns import CheckedResolver, create_public_socket, is_own_address, system_resolve
from dodona.net.egress_guard import FetchLimits, GuardedHttp, HostAllowlist, resolve_redirect
from dodona.net.urls import WebAddress, parse_url
from tests.tools.web.site import Names, Site, answer, names, redirect, site_up

PRIVATE = "is on a private network"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with site_up() as up:
        yield up


@pytest.fixture
async def http(site: Site) -> AsyncIterator[GuardedHttp]:
    """A gate that the site may be reached by, and nothing else of this machine."""
    async with GuardedHttp(
        "Test/1", exempt_hosts=[f"site.test:{site.port}"], resolve=names()
    ) as gate:
        yield gate


async def test_a_page_is_fetched(site: Site, http: GuardedHttp) -> None:
    """With what it says it is; of us the server learns the name alone."""
    site.pages["/a"] = answer("hello", kind="text/plain; charset=utf-8", Set_Cookie="a=b")
    for _ in range(2):
        fetched = await http.get(site.url("/a?b=c#d"))
        assert (fetched.status, fetched.body, fetched.is_cut) == (200, b"hello", False)
        assert fetched.content_type == "text/plain; charset=utf-8"
        assert fetched.address.url == site.url("/a?b=c")
    assert [set(asked.headers) for asked in site.asked] == 2 * [
        {"host", "user-agent", "accept-encoding", "accept"}
    ]
    assert site.asked[1].headers["user-agent"] == "Test/1"


LOCAL = [
    "http://127.0.0.1:PORT/",
    "http://127.1:PORT/",
    "http://2130706433:PORT/",
    "http://0x7f000001:PORT/",
    "http://0177.0.0.1:PORT/",
    "http://0:PORT/",
    "http://[::1]:PORT/",
    "http://[::]:PORT/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://[::ffff:7f00:1]:PORT/",
    "http://[::127.0.0.1]:PORT/",
    "http://[64:ff9b::7f00:1]:PORT/",
    "http://[2002:7f00:1::]:PORT/",
    "http://１２７.0.0.1:PORT/",
    "http://127.0.0.1.:PORT/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://100.100.100.200/",
    "http://10.0.0.1/",
    "http://192.168.1.1/",
]


@pytest.mark.parametrize("url", LOCAL)
async def test_no_spelling_leads_into_a_private_network(
    site: Site, http: GuardedHttp, url: str
) -> None:
    """Neither as it is asked for, nor by a redirect from a page that may be fetched."""
    url = url.replace("PORT", str(site.port))
    site.pages["/out"] = redirect(url)
    for asked in (url, site.url("/out")):
        with pytest.raises(AccessDenied, match=PRIVATE):
            await http.get(asked)
    assert site.paths() == ["/out"]


async def test_names_are_checked_by_what_they_resolve_to(site: Site) -> None:
    """All addresses must be public; a model learns of none of them."""
    resolver = names(
        local_test=[["127.0.0.1"]],
        six_test=[["::1"]],
        mapped_test=[["::ffff:127.0.0.1"]],
        zone_test=[["fe80::1%eth0"]],
        mixed_test=[["93.184.216.34", "127.0.0.1"]],
        turned_test=[["10.0.0.1", "2606:4700::1111"]],
    )
    async with GuardedHttp(
        "Test/1", exempt_hosts=[f"site.test:{site.port}"], resolve=resolver
    ) as http:
        for name in ("local", "six", "mapped", "zone", "mixed", "turned"):
            site.pages["/out"] = redirect(site.url("/", host=f"{name}.test"))
            for url in (site.url("/", host=f"{name}.test"), site.url("/out")):
                with pytest.raises(AccessDenied) as caught:
                    await http.get(url)
                assert str(caught.value) == (
                    f"{name}.test is on a private network. Only public addresses can be fetched."
                )
    assert set(site.paths()) == {"/out"}


async def test_a_refusal_is_logged_with_the_address(
    http: GuardedHttp, caplog: pytest.LogCaptureFixture
) -> None:
    """For the operator, who must know what was tried."""
    with caplog.at_level(logging.WARNING), pytest.raises(AccessDenied):
        await http.get("http://0xa9fea9fe/")
    assert "169.254.169.254" in caplog.text


async def test_what_was_checked_is_what_is_connected_to(site: Site) -> None:
    """A name is resolved once for a connection: there is no second answer to slip in."""
    resolver = Names(site_test=[["127.0.0.1"], ["10.255.255.1"]])
    site.pages["/"] = answer("first", Connection="close")
    async with GuardedHttp("Test/1", exempt_hosts=["site.test"], resolve=resolver) as http:
        assert (await http.get(site.url())).body == b"first"
    assert resolver.asked == {"site.test": 1}


async def test_a_name_that_moves_is_checked_anew() -> None:
    """Public when it was first asked, private a moment later: rebinding."""
    resolver = Names(rebind_test=[["93.184.216.34"], ["127.0.0.1"]])
    checked = CheckedResolver(resolver, is_exempt=False)
    (found,) = await checked.resolve("rebind.test", 80)
    assert (found["host"], found["port"]) == ("93.184.216.34", 80)
    with pytest.raises(AccessDenied, match=PRIVATE):
        await checked.resolve("rebind.test", 80)
    async with GuardedHttp("Test/1", resolve=resolver) as http:
        with pytest.raises(AccessDenied, match=PRIVATE):
            await http.get("http://rebind.test/")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:10.0.0.1", "nonsense", ""])
def test_no_socket_opens_to_a_private_address(host: str) -> None:
    """Whatever a client made of the name before."""
    with pytest.raises(PermissionError):
        create_public_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 80)))


def test_a_socket_opens_to_a_public_address() -> None:
    """It is not connected yet."""
    family = socket.AF_INET
    create_public_socket((family, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 80))).close()


async def test_an_exemption_is_for_its_port(site: Site, http: GuardedHttp) -> None:
    """Another port of the same host is as closed as any, also after a redirect."""
    async with site_up() as other:
        other.pages["/"] = answer("secret")
        site.pages["/out"] = redirect(other.url())
        for url in (other.url(), site.url("/out")):
            with pytest.raises(AccessDenied, match=PRIVATE):
                await http.get(url)
        assert other.asked == []


async def test_an_exemption_is_for_its_name(site: Site) -> None:
    """Not for others that lead to the same address, nor for the address itself."""
    resolver = names(alias_test=[["127.0.0.1"]])
    async with GuardedHttp("Test/1", exempt_hosts=["site.test"], resolve=resolver) as http:
        await http.get(site.url())
        for host in ("alias.test", "127.0.0.1", "x.site.test"):
            with pytest.raises((AccessDenied, ToolFailed)):
                await http.get(site.url(host=host))
    async with GuardedHttp(
        "Test/1", exempt_hosts=[f"127.0.0.1:{site.port}"], resolve=resolver
    ) as http:
        await http.get(site.url(host="127.1"))
        with pytest.raises(AccessDenied):
            await http.get(site.url())
    assert len(site.asked) == 2


def test_exemptions_are_hosts() -> None:
    """In any spelling of the address; a URL, a path or a user is none."""
    exempt = HostAllowlist(
        ["Box.Local", "2130706433:99", "[::1]:8080", "fd00::5", "bücher.example:1"]
    )
    cases = {
        "http://box.local/": True,
        "http://box.local:8888/": True,
        "http://127.0.0.1:99/": True,
        "http://127.0.0.1:98/": False,
        "http://[::1]:8080/": True,
        "http://[::1]/": False,
        "http://[fd00::5]:1234/": True,
        "https://xn--bcher-kva.example:1/": True,
    }
    assert {url: exempt.allows(parse_url(url)) for url in cases} == cases
    for text in ("http://x", "x/", "x/y", "a@b", "", " ", "x:", "x:y", "x?y", "x#y", "10.0.0.0/8"):
        with pytest.raises(ConfigError):
            HostAllowlist([text])


async def test_ports_of_other_servers_are_closed(http: GuardedHttp) -> None:
    """Unless the operator named that very port."""
    for port in (22, 25, 6379, 11211):
        with pytest.raises(AccessDenied, match=f"port {port} is blocked"):
            await http.get(f"http://example.org:{port}/")
    gate = GuardedHttp("Test/1", exempt_hosts=["a.test:6379", "b.test"])
    gate.check(parse_url("http://a.test:6379/"))
    with pytest.raises(AccessDenied):
        gate.check(parse_url("http://b.test:6379/"))


async def test_redirects_are_followed(site: Site, http: GuardedHttp) -> None:
    """Relative ones too; headers of the call go to its own address and no further."""
    site.pages["/a"] = redirect("b", "301 Moved")
    site.pages["/b"] = redirect(site.url("/c"), "308 Moved")
    site.pages["/c"] = answer("end")
    fetched = await http.get(site.url("/a"), headers={"X-Key": "secret"})
    assert (fetched.body, fetched.address.url) == (b"end", site.url("/c"))
    assert ["x-key" in asked.headers for asked in site.asked] == [True, False, False]


async def test_redirects_end(site: Site, http: GuardedHttp) -> None:
    """A loop is left after five of them; none is followed where none is wanted."""
    site.pages["/a"] = redirect("/b")
    site.pages["/b"] = redirect("/a")
    with pytest.raises(ToolFailed, match="redirects more than 5 times"):
        await http.get(site.url("/a"))
    assert len(site.asked) == 6
    with pytest.raises(
        ToolFailed, match=r"^site\.test redirects to another URL, and redirects are not followed\.$"
    ):
        await http.get(site.url("/a"), limits=FetchLimits(max_redirects=0))


TARGETS = {
    "file:///etc/passwd": AccessDenied,
    "gopher://127.0.0.1/": AccessDenied,
    "javascript:alert(1)": AccessDenied,
    "//user@site.test/": AccessDenied,
    "http://[": ToolRetry,
    "http://a..b/": ToolRetry,
}


@pytest.mark.parametrize(("to", "kind"), TARGETS.items())
async def test_a_redirect_to_no_page_is_refused(
    site: Site, http: GuardedHttp, to: str, kind: type[Exception]
) -> None:
    """As it would be if it were asked for."""
    site.pages["/"] = redirect(to)
    with pytest.raises(kind):
        await http.get(site.url())


async def test_a_redirect_without_a_target_is_an_answer(site: Site, http: GuardedHttp) -> None:
    """There is nowhere to go."""
    site.pages["/"] = answer("?", "302 Found")
    assert (await http.get(site.url())).status == 302


async def test_each_request_is_announced(site: Site, http: GuardedHttp) -> None:
    """Whoever is around may refuse one before it is made."""
    seen: list[str] = []

    @asynccontextmanager
    async def around(address: WebAddress) -> AsyncIterator[None]:
        seen.append(f"> {address.target}")
        if address.target == "/c":
            raise AccessDenied("no")
        yield
        seen.append(f"< {address.target}")

    site.pages |= {"/a": redirect("/b"), "/b": redirect("/c")}
    with pytest.raises(AccessDenied, match="no"):
        await http.get(site.url("/a"), request_context=around)
    assert seen == ["> /a", "< /a", "> /b", "< /b", "> /c"]
    assert site.paths() == ["/a", "/b"]


async def test_a_long_body_is_cut(site: Site, http: GuardedHttp) -> None:
    """At the limit, to the byte; one that just fits is whole."""
    site.pages["/"] = answer(b"x" * 100_000)
    fetched = await http.get(site.url(), limits=FetchLimits(max_bytes=1_000))
    assert (fetched.body, fetched.is_cut) == (b"x" * 1_000, True)
    fetched = await http.get(site.url(), limits=FetchLimits(max_bytes=100_000))
    assert (len(fetched.body), fetched.is_cut) == (100_000, False)


async def test_an_endless_body_is_cut(site: Site, http: GuardedHttp) -> None:
    """The server is left alone when there is enough."""
    ended = asyncio.Event()

    async def speak(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                await writer.drain()
        finally:
            ended.set()

    site.pages["/"] = speak
    fetched = await http.get(site.url(), limits=FetchLimits(max_bytes=50_000))
    assert (len(fetched.body), fetched.is_cut) == (50_000, True)
    await asyncio.wait_for(ended.wait(), 30)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_bomb_does_not_go_off(site: Site, http: GuardedHttp, encoding: str) -> None:
    """Bytes are counted after they were decompressed, and hardly more are than are wanted."""
    packed = (gzip.compress if encoding == "gzip" else zlib.compress)(bytes(100_000_000))
    assert len(packed) < 200_000
    site.pages["/"] = answer(packed, Content_Encoding=encoding)
    tracemalloc.start()
    try:
        fetched = await http.get(site.url(), limits=FetchLimits(max_bytes=10_000))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (fetched.body, fetched.is_cut) == (bytes(10_000), True)
    assert most < 5_000_000


async def test_a_bomb_in_many_parts_does_not_go_off(site: Site, http: GuardedHttp) -> None:
    """Nor one that unpacks to nothing and takes its time: files one behind the other."""
    site.pages["/"] = answer(gzip.compress(b"") * 20_000, Content_Encoding="gzip")
    with pytest.raises(ToolFailed, match=r"^site\.test sent an invalid response\.$"):
        await http.get(site.url(), limits=FetchLimits(max_bytes=10_000))


async def test_what_is_compressed_is_unpacked(site: Site, http: GuardedHttp) -> None:
    """What claims to be and is not, or is so in a way that nobody asked for, cannot be read."""
    site.pages["/"] = answer(gzip.compress(b"hello"), Content_Encoding="gzip")
    assert (await http.get(site.url())).body == b"hello"
    for encoding in ("gzip", "br"):
        site.pages["/"] = answer(b"hello" * 100, Content_Encoding=encoding)
        with pytest.raises(ToolFailed, match=r"site\.test sent an invalid response"):
            await http.get(site.url())


BROKEN = {
    "a long header": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    "a long status": b"HTTP/1.1 200 " + b"x" * 20_000 + b"\r\n\r\n",
    "no HTTP": b"220 mail.example ESMTP\r\n",
    "less than was said": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello",
    "a bad length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nhello",
    "nothing": b"",
}


@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_answer_is_told(site: Site, http: GuardedHttp, raw: bytes) -> None:
    """By the host's name; what exactly was wrong is in the log."""

    async def speak(writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()
        writer.close()

    site.pages["/"] = speak
    with pytest.raises(ToolFailed, match=r"^site\.test (sent an invalid response|cannot be)"):
        await http.get(site.url())


SLOW = {
    "silent": (b"", b""),
    "the status": (b"HTTP/1.1 200 ", b"x"),
    "a header": (b"HTTP/1.1 200 OK\r\nX: ", b"y"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "the body": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x"),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "only promises": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "early hints": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
}


@pytest.mark.parametrize(("head", "drip"), SLOW.values(), ids=SLOW.keys())
async def test_a_slow_answer_is_left(
    site: Site, http: GuardedHttp, head: bytes, drip: bytes
) -> None:
    """Silent, or a drop at a time, wherever in the answer: the limit is for the whole."""

    async def speak(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(drip)
            await writer.drain()
            await asyncio.sleep(0.01)

    site.pages["/"] = speak
    with pytest.raises(ToolFailed, match=r"site\.test took longer than 0\.3 seconds"):
        await http.get(site.url(), limits=FetchLimits(timeout_seconds=0.3))


async def test_a_slow_resolver_is_left() -> None:
    """Its time counts as well."""

    async def resolve(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    async with GuardedHttp("Test/1", resolve=resolve) as http:
        with pytest.raises(ToolFailed, match=r"took longer than 0\.1 seconds"):
            await http.get("http://slow.test/", limits=FetchLimits(timeout_seconds=0.1))


async def test_names_are_looked_up_by_threads_of_their_own() -> None:
    """A name that nobody answers for holds one up: it must not be one that others here wait for."""
    over = threading.Event()
    busy = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(busy)
    waiting = asyncio.create_task(asyncio.to_thread(over.wait, 60))
    try:
        async with asyncio.timeout(30):
            assert "127.0.0.1" in await system_resolve("127.0.0.1", 80)
        assert not waiting.done()
    finally:
        over.set()
        await waiting


async def test_who_is_cancelled_stops(site: Site, http: GuardedHttp) -> None:
    """It is no error of the host's."""
    begun = asyncio.Event()

    async def speak(writer: asyncio.StreamWriter) -> None:
        begun.set()
        await asyncio.Event().wait()

    site.pages["/"] = speak
    getting = asyncio.create_task(http.get(site.url()))
    await asyncio.wait_for(begun.wait(), 30)
    getting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await getting


async def test_who_is_not_there_is_told(site: Site) -> None:
    """A name without an address, an answer that is none, a port where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = free.getsockname()[1]
    resolver = names(empty_test=[[]], odd_test=[["not an address"]])
    async with GuardedHttp("Test/1", exempt_hosts=["site.test"], resolve=resolver) as http:
        for host in ("nobody.test", "empty.test", "odd.test"):
            with pytest.raises(ToolFailed, match=f"the host {host} does not exist"):
                await http.get(f"http://{host}/")
        with pytest.raises(ToolFailed, match=r"site\.test cannot be reached"):
            await http.get(f"http://site.test:{closed}/")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that nobody vouches for, with its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    words = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=site.test -addext"
    subprocess.run(  # noqa: S603 - our own words
        [openssl, *words.split(), "subjectAltName=DNS:site.test", "-keyout", file, "-out", file],
        check=True,
        capture_output=True,
    )
    return file


async def test_a_warm_connection_does_not_let_others_in(site: Site) -> None:
    """It is kept for the name it was opened for: who comes by another is checked as the first."""
    resolver = names(alias_test=[["127.0.0.1"]])
    exempt = [f"site.test:{site.port}"]
    async with GuardedHttp("Test/1", exempt_hosts=exempt, resolve=resolver) as http:
        for _ in range(3):
            await http.get(site.url("/a"))
            for host in ("alias.test", "127.0.0.1", "[::ffff:127.0.0.1]"):
                with pytest.raises(AccessDenied, match=PRIVATE):
                    await http.get(site.url("/b", host=host))
    assert site.paths() == ["/a"] * 3
    assert site.connections == 1
    assert resolver.asked == {"site.test": 1, "alias.test": 3}


METADATA = {
    "metadata.google.internal": "169.254.169.254",
    "instance-data.ec2.internal": "169.254.169.254",
    "metadata.example": "fd00:ec2::254",
    "azure.example": "168.63.129.16",
    "alibaba.example": "100.100.100.200",
    "oracle.example": "192.0.0.192",
    "nat64.example": "64:ff9b::a9fe:a9fe",
    "google6.example": "fd20:ce::254",
}


@pytest.mark.parametrize(("name", "address"), METADATA.items())
async def test_no_name_leads_to_a_cloud_s_secrets(name: str, address: str) -> None:
    """Whoever gave it: the resolver's answer is what counts."""

    async def resolve(host: str, port: int) -> list[str]:
        return [address]

    async with GuardedHttp("Test/1", resolve=resolve) as http:
        with pytest.raises(AccessDenied) as caught:
            await http.get(f"http://{name}/latest/meta-data/")
    assert str(caught.value) == (
        f"{name} is on a private network. Only public addresses can be fetched."
    )


async def test_a_certificate_must_be_trusted(certificate: Path) -> None:
    """Also that of a host that the operator named."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with site_up(context) as site:
        async with GuardedHttp("Test/1", exempt_hosts=["site.test"], resolve=names()) as http:
            with pytest.raises(ToolFailed, match=r"certificate of site\.test is not valid"):
                await http.get(site.url(scheme="https"))
        assert site.asked == []


def test_encryption_is_not_given_up() -> None:
    """A redirect from https to http would let anybody between write the page."""
    page = parse_url("https://example.org/a")
    with pytest.raises(AccessDenied, match="redirects from https to http"):
        resolve_redirect(page, "http://example.org/b")
    assert resolve_redirect(page, "/b").url == "https://example.org/b"


async def test_proxies_of_the_environment_are_not_used(
    site: Site, http: GuardedHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a proxy resolves, we have not checked."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    site.pages["/"] = answer("direct")
    assert (await http.get(site.url())).body == b"direct"


async def test_a_closed_gate_stays_closed(site: Site) -> None:
    """To use it is a mistake in our code."""
    async with GuardedHttp("Test/1", exempt_hosts=["site.test"], resolve=names()) as http:
        await http.get(site.url())
    with pytest.raises(RuntimeError, match="closed"):
        await http.get(site.url())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(url=st.text(max_size=80))
async def test_any_text_is_answered_or_refused(http: GuardedHttp, url: str) -> None:
    """Nothing but our own errors comes of it."""
    with pytest.raises(DodonaError):
        await http.get(url if url.startswith("http") else f"http://{url}")


@pytest.mark.parametrize("text", ["127.0.0.1", "::1"])
def test_an_address_of_this_machine_is_known(text: str) -> None:
    """It need not be asked whether it is public: it is found by the way that leads there."""
    assert is_own_address(ip_address(text))


@pytest.mark.parametrize("text", ["93.184.216.34", "2606:4700::1111"])
def test_an_address_elsewhere_is_not_ours(text: str) -> None:
    """Also when there is no way to it."""
    assert not is_own_address(ip_address(text))


OWN_ADDRESS = """
import asyncio
from dodona.core.errors import ToolFailed
from dodona.net.egress_guard import GuardedHttp

async def main():
    async def serve(reader, writer):
        print("was reached")
        writer.close()

    server = await asyncio.start_server(serve, "0.0.0.0", 8080)
    async def resolve(host, port):
        return ["93.184.216.34"]
    async with server, GuardedHttp("Test/1", resolve=resolve) as http:
        for host in ("93.184.216.34", "site.test"):
            try:
                await http.get(f"http://{host}:8080/")
            except ToolFailed as error:
                print(error)

asyncio.run(main())
"""


def test_a_public_address_of_this_machine_is_refused(tmp_path: Path) -> None:
    """What listens there may trust whoever comes from here, as what listens on loopback does."""
    script = tmp_path / "own.py"
    script.write_text(OWN_ADDRESS)
    here = "ip link set lo up && ip address add 93.184.216.34/32 dev lo || exit 77"
    tools = [shutil.which(name) for name in ("unshare", "ip")]
    if None in tools:
        pytest.skip("needs unshare and ip")
    done = subprocess.run(  # noqa: S603 - our own words
        [str(tools[0]), "-rn", "sh", "-c", f"{here}; exec {sys.executable} {script}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("needs a network of its own")
    assert (done.stdout.splitlines(), done.stderr) == (
        ["93.184.216.34 cannot be reached.", "site.test cannot be reached."],
        "",
    )
