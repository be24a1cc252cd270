"""Render Jinja templates within limits of time and size, even if their author is untrusted.

A template can show values, branch with `if` and repeat with `for`. It cannot call functions,
assign variables or include other templates.
"""

from __future__ import annotations

from dodona.templates.language import MAX_RENDERED_CHARS
from dodona.templates.rendering import Template, render

__all__ = ["MAX_RENDERED_CHARS", "Template", "render"]
