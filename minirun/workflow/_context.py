"""What the logic of a node gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError
from ..runtime import InvocationContext
from ._collected import Collected

if TYPE_CHECKING:
    from ..credentials import AuthConfig, AuthCredential

__all__ = ["NodeContext"]


class NodeContext(InvocationContext):
    """The context of a node's own logic: an InvocationContext whose `output` and `route` can be set."""

    __slots__ = ()

    @property
    def output(self) -> Any:
        """The output, if the logic has set or said it by now; else None. It is said once, here or by what it gives."""
        return self._said().output

    @output.setter
    def output(self, value: Any) -> None:
        self._said().set_output(value)

    @property
    def route(self) -> Any:
        """The route that was set or said last; else None."""
        return self._said().route

    @route.setter
    def route(self, value: Any) -> None:
        self._said().set_route(value)

    async def request_input(self, message: str, *, response_schema: Any = None, payload: Any = None) -> Any:
        """
        Ask somebody outside, as in any context.

        Raises:
            ConfigurationError: The node has `rerun_on_resume=False`: it does not go on after a question.
        """
        self._check_goes_on("yield a RequestInput, whose answer is the output")
        return await super().request_input(message, response_schema=response_schema, payload=payload)

    async def request_credential(
        self, auth_config: AuthConfig, *, rejected: AuthCredential | None = None
    ) -> AuthCredential:
        """
        Return the user's credential, or ask for it, as in any context.

        Raises:
            ConfigurationError: The node has `rerun_on_resume=False`: it does not go on after a question.
        """
        self._check_goes_on("ask for it in a node of its own")
        return await super().request_credential(auth_config, rejected=rejected)

    def _check_goes_on(self, otherwise: str) -> None:
        node = self._position.node
        if node is not None and node.ends_with_questions:
            msg = f"the node {node.info_path} has rerun_on_resume=False, so a question ends it"
            raise ConfigurationError(f"{msg}; leave that out, or {otherwise}")

    def _said(self) -> Collected:
        self._check_writable()
        node = self._position.node
        assert node is not None, "it is inside of a node"
        assert node.collected is not None, "only functions are given this context"
        return node.collected
