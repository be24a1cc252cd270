"""The address of the store as the store takes it, its password in it and hidden from now on."""

from __future__ import annotations

from urllib.parse import quote, unquote

from dodona.app.config.config import Config
from dodona.app.models.credentials import Credentials

_URL_KEY = ("store", "url")
_PASSWORD_KEY = ("store", "password")


def store_url(config: Config, credentials: Credentials) -> str:
    """An absolute path, or `postgresql://…`."""
    store = config.settings.store
    if store.url is None:
        return str(config.home / "dodona.db")
    scheme, separator, rest = store.url.partition("://")
    if not separator:
        return str(config.resolve(store.url, _URL_KEY).absolute())
    if scheme == "sqlite":
        # One slash ends the host, which there is none: the path is relative after it.
        return str(config.resolve(rest.removeprefix("/"), _URL_KEY).absolute())
    if store.password:
        secret = credentials.resolve(store.password, _PASSWORD_KEY)
        return f"postgresql://{_with_password(rest, secret.reveal())}"
    for password in _find_passwords(rest):
        credentials.register(password, f"the password in {config.origins.variables[_URL_KEY]}")
    return f"postgresql://{rest}"


def _with_password(rest: str, password: str) -> str:
    user, at, host = rest.rpartition("@")
    return f"{user if at else ''}:{quote(password, safe='')}@{host}"


def _find_passwords(rest: str) -> list[str]:
    """Those in an address that came from the environment: the file may hold none."""
    address, _, query = rest.partition("?")
    user, _, _ = address.rpartition("@")
    parameters = (part.partition("=") for part in query.split("&"))
    written = [user.partition(":")[2]]
    written += [value for name, _, value in parameters if name == "password"]
    return [form for password in written if password for form in (unquote(password), password)]
