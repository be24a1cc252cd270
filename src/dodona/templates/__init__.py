"""Text with values in it, whoever wrote the template: it ends soon and stays small.

A template may show values, choose with `if` and repeat with `for`; it cannot call, assign or
include.
"""

from __future__ import annotations

from dodona.templates.language import MAX_RENDERED_CHARS
from dodona.templates.rendering import Template, render

__all__ = ["MAX_RENDERED_CHARS", "Template", "render"]
