"""The gate's other door: to addresses that are public, in a network made for the test.

A network namespace has the public address 93.184.216.34, with a server behind it; in another, where
the gate is, somebody listens on loopback who must never be reached. Nothing leaves this machine.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

# The server is a child of the shell, in a namespace of its own: it ends with its standard input.
NETWORK: Final = """
set -e
ip link set lo up
unshare -n "$PYTHON" "$SERVER" < "$FIFO" > "$LOG" &
there=$!
exec 3> "$FIFO"
until grep -q begun "$LOG"; do sleep 0.02; done
ip link add here type veth peer name there
ip link set there netns $there
ip address add 93.184.216.1/24 dev here
ip link set here up
nsenter -t $there -n sh -c 'ip address add 93.184.216.34/24 dev there; ip link set there up'
"$PYTHON" "$CLIENT"
"""

SERVER: Final = """
import asyncio
import sys

PLACES = {
    b"/to-loopback": b"http://127.0.0.1:8080/",
    b"/to-itself": b"/",
    b"/to-private-name": b"http://private.test:8080/",
    b"/to-rebound-name": b"http://rebinds.test:8080/",
    b"/to-decimal": b"http://2130706433:8080/",
    b"/to-mapped": b"http://[::ffff:127.0.0.1]:8080/",
}

async def serve(reader, writer):
    try:
        while True:
            path = (await reader.readuntil(b"\\r\\n\\r\\n")).split()[1]
            if path in PLACES:
                head, body = b"302 Found\\r\\nLocation: " + PLACES[path], b""
            else:
                head, body = b"200 OK", b"public " + path
            if path == b"/close":
                head += b"\\r\\nConnection: close"
            length = b"\\r\\nContent-Length: %d" % len(body)
            writer.write(b"HTTP/1.1 " + head + length + b"\\r\\n\\r\\n" + body)
            if path == b"/close":
                break
    except asyncio.IncompleteReadError:
        pass
    finally:
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", 8080)
    print("begun", flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""

CLIENT: Final = """
import asyncio
import json
from dodona.core.errors import DodonaError
from dodona.net.egress_guard import GuardedHttp
from tests.tools.web.site import Names

PUBLIC, PRIVATE = ["93.184.216.34"], ["127.0.0.1"]
reached = 0

async def loopback(reader, writer):
    global reached
    reached += 1
    writer.close()

async def got(http, url):
    try:
        return (await http.get(url)).body.decode()
    except DodonaError as error:
        return str(error)

async def main():
    names = Names(
        public_test=[PUBLIC],
        private_test=[PRIVATE],
        mixed_test=[PUBLIC + PRIVATE],
        closes_test=[PUBLIC, PRIVATE],
        stays_test=[PUBLIC, PRIVATE],
        rebinds_test=[PRIVATE],
    )
    found = {}
    async with await asyncio.start_server(loopback, "127.0.0.1", 8080):
        async with GuardedHttp("Test/1", resolve=names) as http:
            for name, urls in {
                "by address": ["93.184.216.34/"],
                "by name": ["public.test/a", "public.test/b"],
                "redirect": ["public.test/to-itself"],
                "rebound, anew": ["closes.test/close", "closes.test/"],
                "rebound, warm": ["stays.test/a", "stays.test/b"],
                "mixed": ["mixed.test/"],
                "led away": [
                    "public.test/to-loopback", "public.test/to-private-name",
                    "public.test/to-rebound-name", "public.test/to-decimal",
                    "public.test/to-mapped",
                ],
            }.items():
                found[name] = [await got(http, "http://" + each.replace("/", ":8080/", 1))
                               for each in urls]
    found["asked"] = dict(names.asked)
    found["reached"] = reached
    print(json.dumps(found))

asyncio.run(main())
"""


def refused(host: str) -> str:
    return f"{host} is on a private network. Only public addresses can be fetched."


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of each request."""
    if any(shutil.which(name) is None for name in ("unshare", "nsenter", "ip", "mkfifo")):
        pytest.skip("needs unshare, nsenter and ip")
    folder = tmp_path_factory.mktemp("network")
    for name, text in (("network.sh", NETWORK), ("server.py", SERVER), ("client.py", CLIENT)):
        (folder / name).write_text(text)
    (folder / "log").touch()
    subprocess.run(["mkfifo", folder / "fifo"], check=True)  # noqa: S603, S607 - our own words
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "SERVER": str(folder / "server.py"),
        "CLIENT": str(folder / "client.py"),
        "FIFO": str(folder / "fifo"),
        "LOG": str(folder / "log"),
    }
    if subprocess.run(["unshare", "-rn", "true"], env=environment, check=False).returncode:  # noqa: S607
        pytest.skip("needs networks of its own")
    done = subprocess.run(  # noqa: S603 - our own words
        ["unshare", "-rn", "sh", folder / "network.sh"],  # noqa: S607
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_public_is_open(found: dict[str, Any]) -> None:
    """By address and by name, and to where a page redirects."""
    assert found["by address"] == ["public /"]
    assert found["by name"] == ["public /a", "public /b"]
    assert found["redirect"] == ["public /"]


def test_a_name_that_is_rebound_is_refused(found: dict[str, Any]) -> None:
    """It was public for the first connection; for the second it is resolved and checked anew."""
    assert found["rebound, anew"] == ["public /close", refused("closes.test")]
    assert found["asked"]["closes.test"] == 2


def test_a_warm_connection_leads_where_it_was_checked(found: dict[str, Any]) -> None:
    """Whatever the name means by now: nobody asks, and nothing goes there."""
    assert found["rebound, warm"] == ["public /a", "public /b"]
    assert found["asked"]["stays.test"] == 1


def test_a_name_with_a_private_address_is_refused(found: dict[str, Any]) -> None:
    """However public its other addresses are."""
    assert found["mixed"] == [refused("mixed.test")]


def test_no_public_page_leads_into_the_house(found: dict[str, Any]) -> None:
    """By address, in whatever form, or by name."""
    hosts = ("127.0.0.1", "private.test", "rebinds.test", "127.0.0.1", "::ffff:7f00:1")
    assert found["led away"] == [refused(host) for host in hosts]
    assert found["reached"] == 0
