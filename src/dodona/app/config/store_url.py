"""Resolves the store's URL, with its password, and registers the password for redaction."""

from __future__ import annotations

from urllib.parse import quote, unquote

from dodona.app.config.config import Config
from dodona.app.models.credentials import Credentials

_URL_KEY = ("store", "url")
_PASSWORD_KEY = ("store", "password")


def store_url(config: Config, credentials: Credentials) -> str:
    """Return the store's location: an absolute path, or a `postgresql://` URL."""
    store = config.settings.store
    if store.url is None:
        return str(config.home / "dodona.db")
    scheme, separator, rest = store.url.partition("://")
    if not separator:
        return str(config.resolve(store.url, _URL_KEY).absolute())
    if scheme == "sqlite":
        # The slash after the empty host is not part of the path: `sqlite:///x` is relative.
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
    """Return the passwords in a URL. Only one from the environment can have any."""
    address, _, query = rest.partition("?")
    user, _, _ = address.rpartition("@")
    parameters = (part.partition("=") for part in query.split("&"))
    passwords = [user.partition(":")[2]]
    passwords += [value for name, _, value in parameters if name == "password"]
    return [form for password in passwords if password for form in (unquote(password), password)]
