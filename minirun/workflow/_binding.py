"""
How a function becomes a node: where its arguments come from, and how its output is written.

All of it is decided when the node is made. What cannot work is refused then; per run, values are only read.

Where the value of a parameter comes from:

    ctx                 the context; so for a parameter annotated with a context class, whatever its name
    node_input          the input of the run
    any other name      the state's value of that key; or the field of the input (`parameter_binding="node_input"`)
    one other name      the input of the run, if the state has no such key, the schema of the state no such field, and
                        the function no `node_input`: `def classify(user_msg: str, ctx)`
    its default         where none of these has a value
    a partial's         what `functools.partial` has given by name is left to it

How a value is read:

* By the annotation, with the types and the strictness of tools' arguments: a string is no number, and an object becomes
  the class that is named. What is made that way belongs to the function, which may change it.
* Without an annotation (or with `Any` or `object`) it is the frozen value itself. So no function can change what is
  recorded of the node before it.
* The first nodes are given the message of the user. A parameter that takes text gets its text, one annotated with
  `Content` or without annotation the message itself; for any other type the text is read as JSON.

An output is written by what it is, as a tool's result (`flows._written`), and is JSON from then on: the next node reads
the same value from a run that goes on as from one that was resumed.

Not handled: generic classes and `TypeVar` as annotations, as for tools.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Literal, NoReturn, TypeAlias, get_args, get_origin

import attrs

from .._json import JSON, FrozenDict, FrozenList, brief, freeze, shown
from ..errors import InvalidValueError, NodeInputError, WorkflowConfigurationError
from ..events import Event
from ..flows._output import OutputSchema, parsed
from ..flows._parameters import EMPTY, parameters_of, resolved
from ..flows._schema import Compiler
from ..flows._signature import function_behind
from ..flows._types import SCALARS, Field, Type, bounded, mismatch, read_value
from ..flows._written import fields_shown, written
from ..runtime import ReadonlyContext
from ..types import Blob, Content, FileData, Part
from ._request_input import RequestInput

__all__ = ["Binding", "FunctionKind", "ParameterBinding", "checked_input", "form_of"]

FunctionKind: TypeAlias = Literal["sync", "async", "generator", "async generator"]
ParameterBinding: TypeAlias = Literal["state", "node_input"]

CONTEXT_NAME = "ctx"
INPUT_NAME = "node_input"

# The names of context classes, here and in ADK: as annotations they often stand under `if TYPE_CHECKING:`.
_CONTEXT_CLASSES = frozenset(
    {"CallbackContext", "Context", "InvocationContext", "NodeContext", "ReadonlyContext", "ToolContext"}
)

# Below the first level: a join puts outputs into an object.
_OUTPUT_LEVEL = 2

# What a node says or asks, and what stands in messages: none of it is the value of an output.
_NO_VALUES = (Event, RequestInput, Content, Part, Blob, FileData)

_ONE_BY_ONE = (
    *(collections.abc.Iterator, collections.abc.Iterable, collections.abc.Generator),
    *(collections.abc.AsyncIterator, collections.abc.AsyncIterable, collections.abc.AsyncGenerator),
)
_MISSING = object()


# --- parameters -------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Parameter:
    """One parameter that a value is read for."""

    name: str
    has_default: bool

    type: Type | None
    """How JSON is read; None: it takes nothing but a message."""

    kinds: frozenset[str]
    """The kinds of JSON that the annotation allows, an integer being a number."""

    is_open: bool
    """It has no annotation: the frozen value itself, or the message."""

    takes_content: bool
    """It takes a message as it is."""

    def read(self, value: JSON | Content, path: str) -> tuple[Any, list[str]]:
        """Return the argument, and no problems; or all problems, and something. *path* is what messages call it."""
        if isinstance(value, Content):
            if self.is_open or self.takes_content:
                return value, []
            value, problems = _read_in(value, self.kinds, path)
            if problems:
                return None, problems
        if self.is_open:
            return value, []
        if self.takes_content and isinstance(value, str) and "string" not in self.kinds:
            return Content(role="user", parts=[Part(text=value)]), []
        if self.type is None:
            return None, [mismatch(path, "a message or its text", value)]
        return read_value(self.type, value, path)


def _read_in(message: Content, kinds: frozenset[str], path: str) -> tuple[JSON, list[str]]:
    """What a message is to a type of these kinds: its text, or the JSON that its text is."""
    return (message.text, []) if "string" in kinds else _json_in(message, path)


def _json_in(message: Content, path: str) -> tuple[JSON, list[str]]:
    """The JSON that the text of a message is."""
    value, problems = parsed(message.text.strip())
    why = "the message is read as JSON, since no text is expected"
    return value, [f"{path}: {problem}; {why}" for problem in problems]


def _parameter(parameter: inspect.Parameter, where: str, namespace: dict[str, Any]) -> Parameter:
    spot = f"parameter {parameter.name!r} of {where}"
    hint = resolved(parameter.annotation, f"the annotation {parameter.annotation!r} of {spot}", namespace)
    has_default, is_open = parameter.default is not EMPTY, hint in (EMPTY, Any, object)
    rest, takes_content = _without(hint, (Content,))
    if rest is None:  # nothing but messages
        return Parameter(parameter.name, has_default, None, frozenset(), False, True)
    compiler = Compiler()
    kind = SCALARS[rest] if isinstance(rest, type) and rest in SCALARS else compiler.compile(rest, spot)
    kinds = _kinds(compiler.finish(kind.schema))
    return Parameter(parameter.name, has_default, kind, kinds, is_open, takes_content)


def _without(hint: Any, classes: tuple[type, ...]) -> tuple[Any, bool]:
    """An annotation without these members of a union, and whether it has any; None: it has nothing else."""
    members = get_args(hint) if get_origin(hint) in (typing.Union, UnionType) else (hint,)
    rest = [each for each in members if not (isinstance(each, type) and issubclass(each, classes))]
    if len(rest) == len(members):
        return hint, False
    return (typing.Union[tuple(rest)] if rest else None), True  # noqa: UP007 # of members that are known only here


def _is_context(parameter: inspect.Parameter, namespace: dict[str, Any]) -> bool:
    annotation = parameter.annotation
    if parameter.name == CONTEXT_NAME:
        return True
    try:
        hint = resolved(annotation, "it", namespace)
    except TypeError:  # what it names is imported for type checkers only: no problem for a context's own
        named = annotation.partition("|")[0].strip().rpartition(".")[2] if isinstance(annotation, str) else ""
        return named in _CONTEXT_CLASSES
    return _without(hint, (ReadonlyContext,))[1]


_ALL_KINDS = frozenset({"null", "boolean", "number", "string", "array", "object"})
_KIND_OF = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}


def _kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    """The kinds of JSON that a schema allows, or more: what it says in other words than types is not looked at."""
    return _kinds_below(schema, schema.get("$defs", {}), frozenset())


def _kinds_below(schema: Any, definitions: Mapping[str, Any], around: frozenset[str]) -> frozenset[str]:
    if not isinstance(schema, Mapping):
        return _ALL_KINDS
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return frozenset() if name in around else _kinds_below(definitions.get(name), definitions, around | {name})
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return frozenset().union(*(_kinds_below(each, definitions, around) for each in schema[union]))
    if "type" in schema:
        named = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        return frozenset("number" if each == "integer" else each for each in named)
    if "enum" in schema:
        return frozenset(_KIND_OF.get(type(option), "null") for option in schema["enum"])
    return _ALL_KINDS


# --- bindings ---------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class Binding:
    """What is known of a function that is the logic of a node."""

    func: Callable[..., Any]

    name: str
    """The name of the node."""

    kind: FunctionKind
    """How it is called, and its results are taken."""

    parameter_binding: ParameterBinding

    _contexts: tuple[str, ...]
    _node_input: Parameter | None
    _others: tuple[Parameter, ...]
    _state_fields: Mapping[str, Any] | None
    _input_form: OutputSchema | None
    _output_form: OutputSchema | None

    @classmethod
    def of(
        cls,
        func: Callable[..., Any],
        *,
        name: str | None = None,
        parameter_binding: ParameterBinding = "state",
        state_schema_fields: Mapping[str, Any] | None = None,
        input_schema: object = None,
        output_schema: object = None,
    ) -> Binding:
        """
        Return how *func* is called as the logic of a node.

        Args:
            func: A function or method, sync or async, a generator of either kind, a `functools.partial` of one, or an
                object with `__call__`.
            name: The name of the node, an identifier; by default the function's.
            parameter_binding: Where parameters come from besides `ctx` and `node_input`: the `"state"`, or the fields
                of the `"node_input"`.
            state_schema_fields: The fields of the schema of the state, each with its annotation or as a `Field`; None:
                there is no schema.
            input_schema: What every input has to be: a type or a JSON schema. Inputs are handed on as JSON of this
                form, defaults filled in, and read by the annotations then.
            output_schema: What every output has to be: a type or a JSON schema.

        Raises:
            WorkflowConfigurationError: The function cannot be one of a node: it has no name, a parameter that takes any
                number of values, that has no name of its own or an annotation that values cannot be read by, or that
                comes from nowhere; or its result has no form in JSON.
            ConfigurationError: A schema is none.
        """
        inner = func
        while isinstance(inner, functools.partial):
            inner = inner.func
        name = _name_of(inner, name)
        if parameter_binding not in ("state", "node_input"):
            expected = "expected parameter_binding to be 'state' or 'node_input'"
            raise WorkflowConfigurationError(f"node {name!r}: {expected}, found {brief(parameter_binding)}")
        function = function_behind(func)
        where = f"{getattr(function, '__qualname__', type(function).__qualname__)}()"
        try:
            contexts, others = _parameters(func, where, getattr(function, "__globals__", {}))
            kind = _kind_of(inner)
        except TypeError as error:
            raise WorkflowConfigurationError(f"node {name!r}: {error}") from None
        binding = cls(
            func,
            name,
            kind,
            parameter_binding,
            contexts,
            others.pop(INPUT_NAME, None),
            tuple(others.values()),
            None,
            form_of(input_schema, f"input_schema of node {name!r}"),
            form_of(output_schema, f"output_schema of node {name!r}"),
        )
        return binding if state_schema_fields is None else binding.with_state_fields(state_schema_fields)

    def with_state_fields(self, fields: Mapping[str, Any]) -> Binding:
        """
        Return the binding in a workflow whose state has these fields, as `state_schema_fields` of `of`.

        Raises:
            WorkflowConfigurationError: A parameter is no field and cannot be the input; or its annotation and that of
                its field have no value in common.
        """
        if self.parameter_binding == "state":
            self._check_fields(fields)
        return attrs.evolve(self, state_fields=fields)

    def arguments(self, context: object, node_input: JSON | Content, state: Mapping[str, Any]) -> dict[str, Any]:
        """
        Return the arguments to call the function with, all by name.

        Args:
            context: The context of the run.
            node_input: The input of the run: frozen JSON, or the message of the user.
            state: The state, of which each key is read once, in the order of the parameters.

        Raises:
            NodeInputError: A value is missing or does not fit; a line for each problem, with its path.
        """
        if self._input_form is not None:
            node_input, problems = checked_input(node_input, self._input_form)
            if problems:
                self._refuse(problems)
        arguments: dict[str, Any] = dict.fromkeys(self._contexts, context)
        problems = []
        if self._node_input is not None:
            arguments[INPUT_NAME], problems = self._node_input.read(node_input, INPUT_NAME)
        source, of = state, "state"
        if self._others and self.parameter_binding == "node_input":
            source, of = self._fields_of(node_input), INPUT_NAME
        missing = []
        for parameter in self._others:
            value = source.get(parameter.name, _MISSING)
            if value is not _MISSING:
                arguments[parameter.name], found = parameter.read(value, f"{of}[{parameter.name!r}]")
                problems += found
            elif not parameter.has_default:
                missing.append(parameter)
        if len(missing) == 1 and self._may_be_input(missing[0]):
            arguments[missing[0].name], found = missing[0].read(node_input, missing[0].name)
            problems += found
        else:
            problems += [f"{of}[{parameter.name!r}]: missing; {self._advice(parameter)}" for parameter in missing]
        if problems:
            self._refuse(problems)
        return arguments

    def written(self, value: object) -> JSON:
        """
        Return an output as frozen JSON.

        Raises:
            InvalidValueError: A part of it has no JSON form, or it does not fit `output_schema`. The path begins with
                `output of 'lookup'`.
            SecretError: A part of it is a credential.
        """
        path = f"output of {self.name!r}"
        if isinstance(value, (Content, Part)):
            found = f"expected a value that JSON has a form for, found {type(value).__name__}"
            raise InvalidValueError(path, f"{found}; return its text, or say it with `Event(message=...)`")
        if type(value) not in (FrozenDict, FrozenList):  # those are JSON already: the output of an event
            value = written(value, path, _fields_of_values, _OUTPUT_LEVEL)
        output = freeze(value, path, _OUTPUT_LEVEL)
        problems = [] if self._output_form is None else self._output_form.problems(output)
        if problems:
            raise InvalidValueError(path, f"expected what output_schema says; {'; '.join(problems)}")
        return output

    def _check_fields(self, fields: Mapping[str, Any]) -> None:
        unknown = [parameter for parameter in self._others if parameter.name not in fields]
        is_input = len(unknown) == 1 and self._node_input is None and not unknown[0].has_default
        if unknown and not is_input:
            names = ", ".join(repr(parameter.name) for parameter in unknown)
            msg = (
                f"node {self.name!r}: expected parameters that are fields of the state "
                f"({', '.join(fields) or 'it has none'}), found {names}; add them to the schema of the state, take "
                f"them from `{INPUT_NAME}`, or give them a value by functools.partial"
            )
            raise WorkflowConfigurationError(msg)
        for parameter in self._others:
            if parameter.name in fields:
                self._check_field(parameter, fields[parameter.name])

    def _check_field(self, parameter: Parameter, annotation: Any) -> None:
        spot, compiler = f"field {parameter.name!r} of the state", Compiler()
        try:
            field = annotation.type if isinstance(annotation, Field) else compiler.compile(annotation, spot)
        except TypeError as error:
            raise WorkflowConfigurationError(f"node {self.name!r}: {error}") from None
        kinds = _kinds(compiler.finish(field.schema))
        common = kinds & parameter.kinds
        if not common or (common == {"null"} and kinds != common != parameter.kinds):
            msg = (
                f"node {self.name!r}: expected parameter {parameter.name!r} to take values of the {spot} "
                f"({_listed(kinds)}), found that it takes others only ({_listed(parameter.kinds)}); annotate both alike"
            )
            raise WorkflowConfigurationError(msg)

    def _may_be_input(self, parameter: Parameter) -> bool:
        """Whether a parameter that the source of values does not know is the input of the run."""
        is_field = self._state_fields is not None and parameter.name in self._state_fields
        return self.parameter_binding == "state" and self._node_input is None and not is_field

    def _advice(self, parameter: Parameter) -> str:
        if self.parameter_binding == "node_input":
            return "let the node before it give it, or give the parameter a default"
        if self._may_be_input(parameter):
            return f"several parameters have no value, so none of them is the input; name that one `{INPUT_NAME}`"
        return "write the key before this node runs, or give the parameter a default"

    def _fields_of(self, value: JSON | Content) -> Mapping[str, Any]:
        """The fields of an input whose fields are the arguments."""
        if isinstance(value, Content):
            value, problems = _json_in(value, INPUT_NAME)
            if problems:
                self._refuse(problems)
        if not isinstance(value, dict):
            self._refuse([mismatch(INPUT_NAME, "object with the arguments", value)])
        return value

    def _refuse(self, problems: list[str]) -> NoReturn:
        raise NodeInputError(f"node {self.name!r}: " + "\n".join(bounded(problems)))


def checked_input(value: JSON | Content, form: OutputSchema) -> tuple[JSON, list[str]]:
    """Return an input as JSON of this form, defaults filled in, and what is wrong with it."""
    if isinstance(value, Content):
        value, problems = _read_in(value, _kinds(form.schema), INPUT_NAME)
        if problems:
            return None, problems
    outcome = form.parse_value(value)
    return outcome.value, [f"{INPUT_NAME}: {problem}" for problem in outcome.problems]


def _listed(kinds: frozenset[str]) -> str:
    return " or ".join(sorted(kinds))


def _fields_of_values(cls: type) -> Mapping[str, str] | None:
    """The fields of classes whose instances are values: also what a class sets itself, as in results of tools."""
    return None if issubclass(cls, _NO_VALUES) else fields_shown(cls)


def form_of(schema: object, what: str) -> OutputSchema | None:
    """The form of a schema, if there is one."""
    return None if schema is None else OutputSchema.of(schema, what)


# --- functions --------------------------------------------------------------------------------------------------------


def _name_of(inner: Any, name: str | None) -> str:
    if isinstance(inner, type) or not callable(inner):
        expected = "expected a function or an object that can be called"
        raise WorkflowConfigurationError(f"{expected}, found {shown(inner)}; of a class, make an instance first")
    given = getattr(inner, "__name__", type(inner).__name__) if name is None else name
    if isinstance(given, str) and given.isidentifier():
        return given
    found = "a lambda" if given == "<lambda>" else shown(given)
    msg = f"expected a node's name to be an identifier, found {found}; write `node(func, name=...)`"
    raise WorkflowConfigurationError(msg)


def _kind_of(inner: Any) -> FunctionKind:
    function = inner if inspect.isroutine(inner) else type(inner).__call__
    if inspect.isasyncgenfunction(function):
        return "async generator"
    if inspect.isgeneratorfunction(function):
        return "generator"
    return "async" if inspect.iscoroutinefunction(function) else "sync"


def _parameters(
    func: Callable[..., Any], where: str, namespace: dict[str, Any]
) -> tuple[tuple[str, ...], dict[str, Parameter]]:
    """
    Return the names of the parameters that take the context, and the other ones, in order.

    Raises:
        TypeError: One of them cannot be given a value.
    """
    fixed = func.keywords if isinstance(func, functools.partial) else {}
    contexts, others = [], {}
    for parameter in parameters_of(func, where):
        if parameter.name in fixed:
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            msg = f"parameter {parameter.name!r} of {where} is positional-only, expected one that can be passed by name"
            raise TypeError(f"{msg}; move it behind the '/'")
        if _is_context(parameter, namespace):
            contexts.append(parameter.name)
        else:
            others[parameter.name] = _parameter(parameter, where, namespace)
    return tuple(contexts), others
