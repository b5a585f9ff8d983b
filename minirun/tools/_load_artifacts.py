"""
The tool by which a model looks into artifacts.

The model is told which there are, each as a JSON string: a name is data, of any origin. Those that it asks for
are put before it in the next request, and in no other: what they contain is not part of the conversation, and is loaded
again when it is asked for again.
"""

from __future__ import annotations

from typing import Any

from .._json import dumps, shown
from ..errors import ArgumentError
from ..flows._prompts import Prompts
from ..models import LlmRequestDraft
from ..runtime import CallbackContext, ToolContext
from ..types import Content, FunctionDeclaration, Part
from ._base import BaseTool
from ._declared import declared

__all__ = ["LoadArtifactsTool", "load_artifacts"]

NAME = "load_artifacts"


class LoadArtifactsTool(BaseTool):
    """Shows a model the artifacts that it asks for, in its next request; the newest versions, as they are then."""

    checks_arguments = False  # it does so itself

    def __init__(self) -> None:
        super().__init__(name=NAME, description=Prompts().load_artifacts, on_interrupted="rerun")

    @property
    def declaration(self) -> FunctionDeclaration:
        """What the model is told of it."""
        return self._declared(Prompts())

    def _declared(self, prompts: Prompts) -> FunctionDeclaration:
        names = {"type": "array", "items": {"type": "string"}, "description": prompts.load_artifacts_names}
        return declared(self.name, prompts.load_artifacts, artifact_names=names)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Say which of the artifacts are there; they are shown when the model is asked next."""
        names = args.get("artifact_names")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ArgumentError(f"expected artifact_names to be a list of names, found {shown(names)}")
        known = set(await tool_context.list_artifacts())
        missing = [name for name in names if name not in known]
        found = {"artifact_names": [name for name in dict.fromkeys(names) if name in known]}
        return {**found, "missing": missing} if missing else found

    async def process_llm_request(self, *, tool_context: CallbackContext, llm_request: LlmRequestDraft) -> None:
        """Tell the model which artifacts there are, and show those that it has just asked for."""
        prompts = tool_context._invocation.program.prompts
        names = await tool_context.list_artifacts()
        if names:
            told = prompts.artifacts.format(names="\n".join(f"- {dumps(name)}" for name in names))
            llm_request.append_instructions([told])
        for name in self._asked_for(llm_request):
            artifact = await tool_context.load_artifact(name)
            if artifact is not None:
                parts = [Part(text=prompts.artifact.format(name=dumps(name))), _readable(artifact)]
                llm_request.contents.append(Content(role="user", parts=parts))

    def _asked_for(self, request: LlmRequestDraft) -> list[str]:
        """The names in the responses that came last, if the model has not spoken since."""
        for content in reversed(request.contents):
            answers = [part.function_response for part in content.parts if part.function_response is not None]
            if answers or content.role != "user":
                asked = (answer.response.get("artifact_names", []) for answer in answers if answer.name == self.name)
                return list(dict.fromkeys(name for names in asked for name in names))
        return []


def _readable(artifact: Part) -> Part:
    """The part as a model reads it: text as text, whatever it was saved as."""
    blob = artifact.inline_data
    if blob is None or not (blob.mime_type.startswith("text/") or blob.mime_type == "application/json"):
        return artifact
    return Part(text=blob.data.decode("utf-8", "replace"))


load_artifacts = LoadArtifactsTool()
