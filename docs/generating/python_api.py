"""Generates python.md from the public names of `dodona` and `dodona.testing`."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import dodona
from dodona import testing
from generating.writing import page, prose, table

# The names of `dodona` by section. A name that is missing here is on the page under "Others".
SECTIONS = {
    "Declare extensions": (
        *("tool", "leaf", "decorator", "decision_tree", "subscriber", "model", "Subagent"),
    ),
    "In tools": ("Context", "Result", "ToolRetry", "ToolFailed", "DodonaError"),
    "In leaves": ("Blackboard", "Step", "Status"),
    "In decision trees": ("DefaultDecisionTree", "AgentState", "AgentConfig"),
    "In subscribers": ("Event",),
    "In model providers": ("ModelOptions", "ModelRequest", "ToolCall"),
    "Embed Dodona": ("open", "App", "Answer", "open_sync", "SyncApp", "asgi"),
}
CHUNKS = "Chunks"

# The members to describe, of classes that have others for Dodona itself.
MEMBERS = {
    "AgentConfig": (),
    "AgentState": ("is_terminal", "elapsed_seconds", "with_extensions", "terminated"),
    "Answer": (),
    "App": ("ask", "stream", "decide", "find_answer", "is_open"),
    "Blackboard": ("get",),
    "DodonaError": (),
    "ScriptedModel": ("from_file",),
    "Step": ("emit", "progress"),
    "Subagent": (),
    "VirtualTimeLoop": (),
    "Context": (
        *("user_id", "project_id", "run_id", "agent", "key", "seconds_left", "is_cancelled"),
        *("wait_cancelled", "progress", "emit"),
    ),
}
_CREATED_BY_DODONA = ("App", "Blackboard", "Context", "Step", "SyncApp")


def python_page() -> str:
    """Return the text of python.md."""
    parts = [
        "# Python API",
        prose("""`dodona` and `dodona.testing` are the public API: use these names in extensions and
            in programs that embed Dodona. Everything else may change in any version. The tutorial
            [Your first tool](../tutorials/first-tool.md) is the place to start."""),
    ]
    for title, names in _sections():
        parts.append(f"## {title}")
        if title == CHUNKS:
            parts.append(_chunks_table(names))
            continue
        parts += [_entry(name, getattr(dodona, name)) for name in names]
    parts += ["## dodona.testing", _text(testing)]
    parts += [_entry(name, getattr(testing, name)) for name in testing.__all__]
    return page(*parts)


def _sections() -> Iterator[tuple[str, tuple[str, ...]]]:
    yield from SECTIONS.items()
    listed = {name for names in SECTIONS.values() for name in names}
    others = [name for name in dodona.__all__ if name not in listed]
    yield CHUNKS, tuple(name for name in others if name.endswith("Chunk"))
    yield "Others", tuple(name for name in others if not name.endswith("Chunk"))


def _chunks_table(names: tuple[str, ...]) -> str:
    rows = [(f"`{name}`", _first_line(getattr(dodona, name)), _fields(name)) for name in names]
    text = "`App.stream` yields them. [Chunks](chunks.md) describes their fields."
    return f"{text}\n\n{table(('class', 'description', 'fields'), rows)}"


def _fields(name: str) -> str:
    return ", ".join(f"`{field}`" for field in getattr(dodona, name).__struct_fields__)


def _entry(name: str, value: Any) -> str:
    parts = [f"### {name}"]
    if name == "__version__":
        return f"{parts[0]}\n\nThe version of Dodona, such as `1.2.0`."
    if not inspect.isclass(value):
        parts += [_block(name, value), _text(value), *_options(value)]
    else:
        parts += [*_constructor(name, value), _text(value), *_field_table(value)]
        parts += _member_table(name, value)
    return "\n\n".join(part for part in parts if part)


def _constructor(name: str, value: type[Any]) -> Iterator[str]:
    is_plain = not _field_names(value) and "__init__" in vars(value)
    if is_plain and name not in _CREATED_BY_DODONA:
        yield _block(name, value)


# -- members ---------------------------------------------------------------------------------------


def _member_table(name: str, value: type[Any]) -> Iterator[str]:
    names = MEMBERS.get(name)
    if names is None:
        names = tuple(each for each, member in vars(value).items() if _is_member(each, member))
    members = {each: inspect.getattr_static(value, each) for each in names}
    if members:
        rows = [_member_row(each, member) for each, member in members.items()]
        yield table(("member", "description"), rows)
    if "ask" in members:
        yield from _options(members["ask"])


def _is_member(name: str, member: Any) -> bool:
    is_code = inspect.isfunction(member) or isinstance(member, property | classmethod)
    return not name.startswith("_") and is_code and bool(inspect.getdoc(member))


def _member_row(name: str, member: Any) -> tuple[str, ...]:
    text = " ".join((inspect.getdoc(member) or "").split())
    if isinstance(member, property):
        return (f"`{name}`", text)
    function = member.__func__ if isinstance(member, classmethod) else member
    parameters = ", ".join(_parameters(function)[1:])
    prefix = "await " if inspect.iscoroutinefunction(function) else ""
    return (_cell(f"{prefix}{name}({parameters})"), text)


def _field_table(value: type[Any]) -> Iterator[str]:
    names = _field_names(value)
    if names:
        types = {
            name: text for base in reversed(value.__mro__) for name, text in _annotations(base)
        }
        yield table(
            ("field", "type"), [(f"`{name}`", _cell(_shorten(types[name]))) for name in names]
        )


def _field_names(value: type[Any]) -> tuple[str, ...]:
    fields = getattr(value, "__struct_fields__", ()) or getattr(value, "__dataclass_fields__", ())
    return tuple(name for name in fields if not name.startswith("_"))


def _annotations(value: type[Any]) -> list[tuple[str, str]]:
    return [(name, str(text)) for name, text in vars(value).get("__annotations__", {}).items()]


# -- signatures ------------------------------------------------------------------------------------


def _block(name: str, function: Callable[..., Any]) -> str:
    parameters = _parameters(function)
    returned = inspect.signature(function).return_annotation
    suffix = f" -> {_shorten(returned)}" if isinstance(returned, str) and returned != "None" else ""
    line = f"{name}({', '.join(parameters)}){suffix}"
    if len(line) > 90:
        inner = "".join(f"    {each},\n" for each in parameters)
        line = f"{name}(\n{inner}){suffix}"
    return f"```text\n{line}\n```"


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Return the parameters as in the source, with `/` and `*`."""
    signature = inspect.signature(function)
    shown = [
        each.replace(annotation=_Source(each.annotation))
        if each.annotation is not each.empty
        else each
        for each in signature.parameters.values()
    ]
    text = str(signature.replace(parameters=shown, return_annotation=signature.empty))
    return _split(text.removeprefix("(").removesuffix(")"))


class _Source:
    """An annotation that is shown as in the source."""

    def __init__(self, annotation: object) -> None:
        self._text = _shorten(str(annotation))

    def __repr__(self) -> str:
        return self._text


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    parts, depth, start = [""], 0, "([{"
    for letter in text:
        depth += (letter in start) - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _shorten(annotation: str) -> str:
    """Return an annotation without what `Annotated` adds and without `UnsetType`."""
    tree = _Shortener().visit(ast.parse(annotation, mode="eval"))
    return ast.unparse(tree)


class _Shortener(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        is_annotated = isinstance(node.value, ast.Name) and node.value.id == "Annotated"
        return node.slice.elts[0] if is_annotated and isinstance(node.slice, ast.Tuple) else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        is_unset = isinstance(node.right, ast.Name) and node.right.id == "UnsetType"
        return node.left if is_unset else node


def _options(function: Any) -> Iterator[str]:
    """The options that a function takes as `**options: Unpack[…]`."""
    for each in inspect.signature(function).parameters.values():
        match = re.fullmatch(r"Unpack\[(\w+)\]", str(each.annotation))
        if match:
            options = vars(sys.modules[function.__module__])[match[1]]
            # A TypedDict keeps its annotations as objects of the type ForwardRef.
            hints = vars(options)["__annotations__"].items()
            rows = [(f"`{name}`", _cell(_shorten(hint.__forward_arg__))) for name, hint in hints]
            yield _text(options)
            yield table(("option", "type"), rows)


# -- text ------------------------------------------------------------------------------------------


def _cell(code: str) -> str:
    return f"`{code}`".replace("|", "\\|")


def _first_line(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0]


def _text(value: Any) -> str:
    """Return a docstring as Markdown: descriptions of parameters become a list."""
    text = inspect.getdoc(value) or ""
    text = re.sub(r"^(\w+(?:, \w+)*): (.*(?:\n {4}.*)*)", _as_item, text, flags=re.M)
    return text.strip()


def _as_item(match: re.Match[str]) -> str:
    return prose(f"- `{match[1]}`: {match[2]}")
