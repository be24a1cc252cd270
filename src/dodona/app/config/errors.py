"""Mistakes in settings: those of the file's, told where they were made, in it or in a variable."""

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
    """Tells what is wrong with settings that were made in these places."""
    return ConfigErrorBuilder(SHAPE, origins.nearest, is_secret=is_secret)


def ineffective_setting(path: KeyPath, consumer: str, origins: SettingOrigins) -> ConfigError:
    """A setting that would do nothing: whoever wrote it expects that it does."""
    return validation_errors(origins).invalid_value(
        path, f"has no effect: {consumer} takes none", hint="Remove it."
    )


def check_secret_destination(
    path: KeyPath, address: str, origins: SettingOrigins
) -> Iterator[ConfigError]:
    """A folder that somebody else wrote must not collect the secrets of whoever enters it."""
    try:
        host = urlsplit(address).hostname or ""
        is_local = not host or host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        yield untrusted_setting(path, "send a secret to an address", origins)


def untrusted_setting(path: KeyPath, action: str, origins: SettingOrigins) -> ConfigError:
    """A setting that only a file may make that somebody named."""
    return validation_errors(origins).invalid_value(
        path,
        f"would {action} that this file chose, and nobody named the file",
        hint=f"If you trust it, name it: --config {origins.file}, or DODONA_CONFIG.",
    )
