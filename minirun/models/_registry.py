"""
Models by name: what `LlmAgent(model="name")` looks up.

The registry belongs to the process, as logging's does, and is empty until somebody registers something. Of the
registrations that fit a name the newest counts, so a test or a notebook puts its own model in the place of another by
registering it, and takes it back with `unregister`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, NamedTuple, TypeAlias, overload

from .._json import brief
from ..errors import ConfigurationError
from ._base import BaseLlm

__all__ = ["LLMRegistry"]

Factory: TypeAlias = Callable[[str], BaseLlm]


# The names that `minirun.models.providers` registers, or will.
_PROVIDERS = re.compile(r"claude-|gpt-|o\d|gemini-|openai:|responses:")


class _Entry(NamedTuple):
    pattern: re.Pattern[str]
    factory: Factory
    models: dict[str, BaseLlm]  # by name, those that were asked for


class LLMRegistry:
    """
    The models that have names. A pattern is a regular expression that has to fit the whole name.

    A name's model is made when it is first asked for, and stays the same object until its registration goes.
    """

    _entries: ClassVar[tuple[_Entry, ...]] = ()  # the newest first; replaced as a whole

    @overload
    @classmethod
    def register(cls, model: type[BaseLlm], /) -> None: ...
    @overload
    @classmethod
    def register(cls, pattern: str, factory: Factory, /) -> None: ...
    @classmethod
    def register(cls, model: type[BaseLlm] | str, factory: Factory | None = None, /) -> None:
        """
        Register a factory for the names that a pattern fits, or a model class for its own `supported_models()`.

        The model of a name is `factory(name)`; for a class it is `model(name)`. What was registered for the very same
        pattern goes; older patterns that fit the same names do not count while this one is there.

        Raises:
            ConfigurationError: A pattern or the factory cannot be one, or the class supports no names.
        """
        if factory is None and isinstance(model, type) and issubclass(model, BaseLlm):
            new = tuple(_entry(pattern, model) for pattern in _patterns_of(model))
        else:
            new = (_entry(model, factory),)
        replaced = {entry.pattern for entry in new}
        cls._entries = (*new, *(entry for entry in cls._entries if entry.pattern not in replaced))

    @classmethod
    def unregister(cls, pattern: str) -> None:
        """
        Forget what is registered for the very same pattern; older ones that fit the same names count again.

        Raises:
            ConfigurationError: There is no such registration.
        """
        left = tuple(entry for entry in cls._entries if entry.pattern.pattern != pattern)
        if len(left) == len(cls._entries):
            msg = f"expected a registered pattern, found {brief(pattern)}; {cls._registered()}"
            raise ConfigurationError(msg)
        cls._entries = left

    @classmethod
    def resolve(cls, name: str) -> Factory:
        """
        Return the factory that makes the model of this name.

        Raises:
            ConfigurationError: No pattern fits the name.
        """
        return cls._find(name).factory

    @classmethod
    def new_llm(cls, name: str) -> BaseLlm:
        """
        Return the model of this name: a new object the first time, afterwards the same one.

        Raises:
            ConfigurationError: No pattern fits the name, or its factory returns no model.
        """
        entry = cls._find(name)
        model = entry.models.get(name)
        if model is not None:
            return model
        made = entry.factory(name)
        if not isinstance(made, BaseLlm):
            msg = f"expected the factory of {entry.pattern.pattern!r} to return a model (a BaseLlm)"
            raise ConfigurationError(f"{msg}, found {brief(made)}")
        return entry.models.setdefault(name, made)  # two threads that have made one each get the same

    @classmethod
    def _find(cls, name: str) -> _Entry:
        fitting = (entry for entry in cls._entries if isinstance(name, str) and entry.pattern.fullmatch(name))
        found = next(fitting, None)
        if found is None:
            todo = "write `LLMRegistry.register(pattern, factory)`, or pass a model object"
            if isinstance(name, str) and _PROVIDERS.match(name):
                todo = "install `minirun[models]` and `import minirun.models.providers`, which registers it"
            msg = f"expected the name of a registered model, found {brief(name)}; {cls._registered()}; {todo}"
            raise ConfigurationError(msg)
        return found

    @classmethod
    def _registered(cls) -> str:
        names = ", ".join(repr(entry.pattern.pattern) for entry in cls._entries)
        return f"registered are {names}" if names else "nothing is registered"


def _patterns_of(model: type[BaseLlm]) -> list[str]:
    patterns = model.supported_models()
    if not isinstance(patterns, (list, tuple)) or not patterns:
        todo = "override it, or write `LLMRegistry.register(pattern, factory)`"
        msg = f"expected {model.__name__}.supported_models() to be a list of patterns, found {brief(patterns)}; {todo}"
        raise ConfigurationError(msg)
    return list(patterns)


def _entry(pattern: object, factory: object) -> _Entry:
    if not (isinstance(pattern, str) and callable(factory)):
        found = f"found {brief(pattern)} and {brief(factory)}"
        msg = f"expected a pattern and a function, {found}; write `LLMRegistry.register(pattern, lambda name: model)`"
        raise ConfigurationError(msg)
    try:
        return _Entry(re.compile(pattern), factory, {})
    except re.error as error:
        msg = f"expected names of models as a regular expression, found {brief(pattern)} ({error})"
        raise ConfigurationError(msg) from None
