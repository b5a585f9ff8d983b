"""Code executors: what runs the code that a model writes."""

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ._base import BaseCodeExecutor as BaseCodeExecutor
    from ._base import BuiltInCodeExecutor as BuiltInCodeExecutor
    from ._base import CodeExecutionInput as CodeExecutionInput
    from ._base import CodeExecutionResult as CodeExecutionResult
    from ._unsafe_local import UnsafeLocalCodeExecutor as UnsafeLocalCodeExecutor
else:
    __getattr__, __dir__, __all__ = names_of(
        globals(),
        {
            "._base": "BaseCodeExecutor BuiltInCodeExecutor CodeExecutionInput CodeExecutionResult",
            "._unsafe_local": "UnsafeLocalCodeExecutor",
        },
    )
