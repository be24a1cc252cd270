"""The address of the store as the store takes it, its password in it and hidden from now on."""

from __future__ import annotations

from urllib.parse import quote, unquote

from dodona.app.config.config import Config
from dodona.app.models.credentials import Credentials

_PATH = ("store", "url")
_PASSWORD = ("store", "password")


def store_url(config: Config, credentials: Credentials) -> str:
    """An absolute path, or `postgresql://…`."""
    store = config.settings.store
    if store.url is None:
        return str(config.home / "dodona.db")
    scheme, separator, rest = store.url.partition("://")
    if not separator:
        return str(config.resolve(store.url, _PATH).absolute())
    if scheme == "sqlite":
        # One slash ends the host, which there is none: the path is relative after it.
        return str(config.resolve(rest.removeprefix("/"), _PATH).absolute())
    if store.password:
        secret = credentials.named(store.password, _PASSWORD)
        return f"postgresql://{_with_password(rest, secret.reveal())}"
    for password in _passwords(rest):
        credentials.keep(password, f"the password in {config.places.variables[_PATH]}")
    return f"postgresql://{rest}"


def _with_password(rest: str, password: str) -> str:
    user, at, host = rest.rpartition("@")
    return f"{user if at else ''}:{quote(password, safe='')}@{host}"


def _passwords(rest: str) -> list[str]:
    """Those in an address that came from the environment: the file may hold none."""
    address, _, query = rest.partition("?")
    user, _, _ = address.rpartition("@")
    parameters = (part.partition("=") for part in query.split("&"))
    written = [user.partition(":")[2]]
    written += [value for name, _, value in parameters if name == "password"]
    return [form for password in written if password for form in (unquote(password), password)]
