"""Errors in settings, each with its location: a line of the file or a variable."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

from dodona.app.config.origins import SettingOrigins
from dodona.app.config.shape import SHAPE, is_secret
from dodona.core.errors import ConfigError
from dodona.documents.toml_lines import KeyPath
from dodona.documents.validation_errors import ConfigErrorBuilder


def validation_errors(origins: SettingOrigins) -> ConfigErrorBuilder:
    """Return a builder of errors that locates settings by their origins."""
    return ConfigErrorBuilder(SHAPE, origins.nearest, is_secret=is_secret)


def ineffective_setting(path: KeyPath, consumer: str, origins: SettingOrigins) -> ConfigError:
    """Return the error for a setting that `consumer` ignores, although its author expects one."""
    return validation_errors(origins).invalid_value(
        path, f"has no effect: {consumer} does not use it", hint="Remove it."
    )


def check_secret_destination(
    path: KeyPath, address: str, origins: SettingOrigins
) -> Iterator[ConfigError]:
    """Yield an error if an untrusted file would send a secret to another machine.

    Otherwise a downloaded folder could collect the secrets of every user who runs Dodona in it.
    """
    try:
        host = urlsplit(address).hostname or ""
        is_local = not host or host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        yield untrusted_setting(path, "send a secret to an address", origins)


def untrusted_setting(path: KeyPath, action: str, origins: SettingOrigins) -> ConfigError:
    """Return the error for a setting that is allowed only in a file the user named."""
    return validation_errors(origins).invalid_value(
        path,
        f"would {action} chosen by a file in the current folder, which is not trusted",
        hint=f"If you trust the file, pass --config {origins.file} or set DODONA_CONFIG.",
    )
