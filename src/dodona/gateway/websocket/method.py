"""Methods, declared by decorating their handlers.

A handler's signature is the definition, as for HTTP operations: its parameters are those of the
method, its docstring describes the method.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter, getdoc, signature
from typing import Any, TypeAlias

from dodona.core.errors import BadRequest, did_you_mean
from dodona.core.json_document import describe, parse_value, strip_null

Handler: TypeAlias = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcMethod:
    """A method. What `handler` returns is the result, unless one was already sent."""

    name: str
    description: str
    result: str
    scope: str
    handler: Handler
    parameters: Mapping[str, Parameter]

    def read_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the handler. Null counts as missing."""
        errors = [*self._unknown_parameters(params)]
        arguments: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            if params.get(name) is None:
                if parameter.default is Parameter.empty:
                    expected = describe_values(parameter)
                    errors.append(BadRequest(f"{name} is missing: {expected}."))
                continue
            try:
                arguments[name] = parse_value(parameter.annotation, name, params[name])
            except BadRequest as error:
                errors.append(error)
        if errors:
            raise BadRequest.combine(errors)
        return arguments

    def _unknown_parameters(self, params: Mapping[str, Any]) -> Iterator[BadRequest]:
        names = ", ".join(self.parameters)
        for name in params:
            if name not in self.parameters:
                all_names = (
                    f"Parameters are {names}." if names else "This method has no parameters."
                )
                hint = did_you_mean(name, self.parameters) or all_names
                yield BadRequest(f"there is no parameter {name!r:.80}.", hint=hint)


def method(name: str, *, result: str, scope: str = "read") -> Callable[[Handler], RpcMethod]:
    """Make the decorated handler a method. `result` describes what it returns."""

    def declare(handler: Handler) -> RpcMethod:
        _, *parameters = signature(handler, eval_str=True).parameters.values()
        return RpcMethod(
            name=name,
            description=(getdoc(handler) or "").partition("\n\n")[0].replace("\n", " "),
            result=result,
            scope=scope,
            handler=handler,
            parameters={each.name: each for each in parameters},
        )

    return declare


def describe_values(parameter: Parameter) -> str:
    """Describe the values of a parameter. An optional one may also be null, which is not said."""
    return describe(strip_null(parameter.annotation))
