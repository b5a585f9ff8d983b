"""
What those who come from Google's ADK look for: where its modules and names are here, and what to use instead.

Loaded when an import or an argument fails, or when a module is asked for by ADK's path; other programs never do.

*   `PATHS`: a module of ADK, `google.adk.agents.llm_agent`, is `minirun.agents.llm_agent`. It has no code: it answers
    for the names of the public lists here that the table names, and for what ADK calls otherwise.
*   `ABSENT` and `ABSENT_MODULES`: names and modules of ADK that are not here. Asking for one raises an error that says
    what to use instead, and not that there is no such name.
*   `OF_RUN_CONFIG` and `OF_CONTEXTS`: the same for arguments, and for attributes of contexts.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from .errors import NotSupportedAttributeError, NotSupportedError, NotSupportedImportError

__all__ = [
    "ABSENT", "ABSENT_MODULES", "OF_CONTEXTS", "OF_RUN_CONFIG", "PATHS", "absent", "no_attribute", "refusal", "spec_of",
]


class Stand(NamedTuple):
    """What answers for a module of ADK's."""

    lists: tuple[str, ...]
    """Modules of minirun, asked in this order."""
    renamed: Mapping[str, str] = {}
    """What ADK calls otherwise there, with its name here."""


def _paths(package: str, modules: str, *, renamed: Mapping[str, Mapping[str, str]] | None = None) -> dict[str, Stand]:
    """Modules of one package, all of which are answered for by its public list."""
    names = {name: (renamed or {}).get(name, {}) for name in modules.split()}
    return {f"{package}.{name}": Stand((package,), other) for name, other in names.items()}


PATHS: dict[str, Stand] = {
    **_paths(
        "agents",
        "base_agent callback_context context live_request_queue llm_agent loop_agent parallel_agent readonly_context "
        "run_config sequential_agent",
        renamed={"context": {"Context": "CallbackContext"}},
    ),
    "agents.context_cache_config": Stand(("models",)),
    "agents.invocation_context": Stand(("agents", "errors")),
    **_paths("apps", "app base_events_summarizer compaction llm_event_summarizer"),
    **_paths("artifacts", "base_artifact_service file_artifact_service in_memory_artifact_service"),
    "auth": Stand(("credentials",)),
    "auth.auth_credential": Stand(("credentials",)),
    "auth.auth_schemes": Stand(("credentials",), {"OpenIdConnectWithConfig": "AuthScheme"}),
    "auth.auth_tool": Stand(("credentials",)),
    "auth.credential_service": Stand(("credentials",)),
    "auth.credential_service.base_credential_service": Stand(("credentials",)),
    "auth.credential_service.in_memory_credential_service": Stand(("credentials",)),
    "cli.utils": Stand(("cli",)),
    "cli.utils.logs": Stand(("cli._logs",)),
    **_paths("errors", "already_exists_error session_not_found_error"),
    **_paths("events", "event event_actions"),
    "events.request_input": Stand(("workflow",)),
    **_paths("planners", "built_in_planner"),
    **_paths("memory", "base_memory_service in_memory_memory_service"),
    "memory.memory_entry": Stand(("memory",)),
    **_paths("models", "base_llm llm_request llm_response registry"),
    **_paths(
        "plugins",
        "base_plugin context_filter_plugin debug_logging_plugin global_instruction_plugin logging_plugin "
        "reflect_retry_tool_plugin save_files_as_artifacts_plugin",
    ),
    **_paths("runners", "runner"),
    **_paths(
        "sessions",
        "base_session_service database_session_service in_memory_session_service session sqlite_session_service state",
    ),
    **_paths(
        "tools",
        "agent_tool base_tool base_toolset exit_loop_tool function_tool get_user_choice_tool load_artifacts_tool "
        "load_memory_tool long_running_tool preload_memory_tool tool_confirmation tool_context",
        renamed={
            "get_user_choice_tool": {"get_user_choice_tool": "get_user_choice"},
            "load_artifacts_tool": {"load_artifacts_tool": "load_artifacts"},
            "load_memory_tool": {"load_memory_tool": "load_memory"},
            "preload_memory_tool": {"preload_memory_tool": "preload_memory"},
        },
    ),
    "tools.openapi_tool": Stand(("tools.openapi",)),
    "tools.openapi_tool.openapi_spec_parser": Stand(("tools.openapi",)),
    "tools.openapi_tool.openapi_spec_parser.openapi_toolset": Stand(("tools.openapi",)),
    "tools.openapi_tool.openapi_spec_parser.rest_api_tool": Stand(("tools.openapi",)),
    "tools.mcp_tool": Stand(("tools.mcp",), {"MCPToolset": "McpToolset"}),
    "tools.mcp_tool.mcp_session_manager": Stand(("tools.mcp",)),
    "tools.mcp_tool.mcp_toolset": Stand(("tools.mcp",), {"MCPToolset": "McpToolset"}),
}


# --- what is not here -------------------------------------------------------------------------------------------------


class Missing(NamedTuple):
    """Some names and modules of ADK, and what to do without them."""

    advice: str
    names: str = ""
    """Whatever module they are asked of."""
    modules: str = ""


_CLOUD = "there is no adapter for this cloud service"

_MISSING = (
    # services
    Missing(
        f"{_CLOUD}; use minirun.sessions.SqliteSessionService(path)",
        names="VertexAiSessionService",
        modules="sessions.vertex_ai_session_service",
    ),
    Missing(
        f"{_CLOUD}; use minirun.artifacts.SqliteArtifactService or FileArtifactService, or implement "
        "BaseArtifactService",
        names="GcsArtifactService",
        modules="artifacts.gcs_artifact_service",
    ),
    Missing(
        f"{_CLOUD}; use minirun.memory.SqliteMemoryService(path), or implement BaseMemoryService",
        names="VertexAiMemoryBankService VertexAiRagMemoryService",
        modules="memory.vertex_ai_memory_bank_service memory.vertex_ai_rag_memory_service",
    ),
    # credentials
    Missing(
        "a secret never stands in a state, which is stored and shown; use minirun.credentials.KeyringCredentialService",
        names="SessionStateCredentialService",
        modules="auth.credential_service.session_state_credential_service",
    ),
    Missing(
        "say which credential is needed by minirun.credentials.AuthConfig(credential_key=..., scheme=...), whose "
        "scheme is a text: 'api_key', 'bearer', 'basic', 'oauth2' or 'custom'",
        names="AuthCredentialTypes AuthSchemeType HttpAuth HttpCredentials ServiceAccount",
        modules="auth.auth_handler auth.auth_preprocessor",
    ),
    Missing(
        "write AuthConfig(..., auth_scheme=minirun.credentials.AuthScheme(...), raw_auth_credential="
        "AuthCredential('client', client_id=..., client_secret=...))",
        names="OAuth2Auth OpenIdConnectWithConfig",
    ),
    # plugins
    Missing(
        "use minirun.plugins.TracingPlugin with an OpenTelemetry exporter, such as that of Google Cloud",
        names="CloudTracePlugin",
    ),
    Missing(
        f"{_CLOUD}; use minirun.plugins.TracingPlugin, or a BasePlugin whose on_event_callback exports",
        names="BigQueryAgentAnalyticsPlugin",
        modules="plugins.bigquery_agent_analytics_plugin",
    ),
    Missing(
        "save what a tool makes as an artifact: tool_context.save_artifact",
        names="MultimodalToolResultsPlugin",
        modules="plugins.multimodal_tool_results_plugin",
    ),
    # models, and what works with those of one provider
    Missing(
        "import minirun.models.gemini.Gemini, which needs minirun[models], and give it a key",
        names="Gemini",
        modules="models.google_llm",
    ),
    Missing(
        "import minirun.models.anthropic.Claude, which needs minirun[models], and give it a key",
        names="AnthropicLlm Claude",
        modules="models.anthropic_llm",
    ),
    Missing(
        "give minirun.models.openai.OpenAIChat the base_url of the server; all that speak chat completions will do",
        names="Gemma3Ollama LiteLlm",
        modules="models.lite_llm",
    ),
    Missing(
        "there is no adapter for it; write a subclass of minirun.models.BaseLlm",
        names="ApigeeLlm Gemma",
        modules="models.apigee_llm models.gemma_llm",
    ),
    Missing(
        "minirun runs no code that a model writes; give the agent a tool that sends it to a sandbox",
        names="AgentEngineSandboxCodeExecutor BaseCodeExecutor BuiltInCodeExecutor CodeExecutorContext "
        "ContainerCodeExecutor GkeCodeExecutor UnsafeLocalCodeExecutor VertexAiCodeExecutor",
        modules="code_executors code_executors.agent_engine_sandbox_code_executor "
        "code_executors.base_code_executor code_executors.built_in_code_executor code_executors.code_execution_utils "
        "code_executors.container_code_executor code_executors.gke_code_executor "
        "code_executors.unsafe_local_code_executor code_executors.vertex_ai_code_executor",
    ),
    Missing(
        "write the plan into the instruction, or use minirun.planners.BuiltInPlanner for the model's own thinking",
        names="BasePlanner PlanReActPlanner",
        modules="planners.base_planner planners.plan_re_act_planner",
    ),
    Missing(
        "write the text of the API instead, such as 'HARM_CATEGORY_HARASSMENT', in minirun.types.SafetySetting",
        names="HarmBlockThreshold HarmCategory",
    ),
    Missing("write minirun.agents.LlmAgent(model_retry=...), which all providers have", names="HttpRetryOptions"),
    Missing("no adapter has an equal of it; leave it out", names="AutomaticFunctionCallingConfig VideoMetadata"),
    Missing(
        "a live model speaks with one voice, by its name: minirun.types.PrebuiltVoiceConfig(voice_name=...)",
        names="MultiSpeakerVoiceConfig ReplicatedVoiceConfig SpeakerVoiceConfig VoiceConsentSignature",
    ),
    Missing(
        "no adapter shows a face or interprets; leave it out",
        names="AvatarConfig CustomizedAvatar TranslationConfig",
    ),
    # tools
    Missing(
        "import it from minirun.tools.openapi, which needs minirun[models]",
        names="OpenAPIToolset RestApiTool",
    ),
    Missing(
        "give minirun.tools.openapi.OpenAPIToolset the OpenAPI document of the API",
        names="APIHubToolset ApplicationIntegrationToolset",
        modules="tools.apihub_tool tools.application_integration_tool tools.google_api_tool",
    ),
    Missing("import McpToolset from minirun.tools.mcp, which needs an extra", names="MCPToolset McpToolset"),
    Missing("a minirun.tools.mcp.McpToolset makes them", names="MCPTool McpTool", modules="tools.mcp_tool.mcp_tool"),
    Missing("give the URL of the server's streamable HTTP, which has taken its place", names="SseConnectionParams"),
    Missing(
        "write a minirun.tools.BaseToolset that asks the server",
        names="ToolboxToolset",
        modules="tools.toolbox_toolset",
    ),
    Missing(
        "it searches at one provider; give the agent a function of your own that searches",
        names="DiscoveryEngineSearchTool VertexAiSearchTool enterprise_web_search google_maps_grounding google_search "
        "url_context",
        modules="tools.enterprise_search_tool tools.google_search_tool tools.retrieval tools.url_context_tool "
        "tools.vertex_ai_search_tool",
    ),
    Missing(
        "give the agent the function that the tool of the other framework wraps",
        names="CrewaiTool LangchainTool",
        modules="tools.crewai_tool tools.langchain_tool",
    ),
    Missing(
        "write the examples into the instruction of the agent",
        names="BaseExampleProvider Example ExampleTool",
        modules="examples tools.example_tool",
    ),
    Missing(
        "ask for the credential in the function: await tool_context.get_credential(AuthConfig(...))",
        names="AuthenticatedFunctionTool",
        modules="tools.authenticated_function_tool",
    ),
    # agents and runs
    Missing(
        "synchronous tools run in worker threads anyway; FunctionTool(f, max_concurrency=...) says how many at once",
        names="ToolThreadPoolConfig",
    ),
    Missing(
        "the runtime keeps the tools of a live run itself; leave it out",
        names="ActiveStreamingTool",
        modules="agents.active_streaming_tool",
    ),
    Missing(
        "a live model is one that speaks, by a minirun.models.BaseLlmConnection",
        modules="live",
    ),
    Missing("subclass minirun.workflow.Node, and override run_node_impl", names="BaseNode"),
    Missing(
        "evaluation is not in this version; minirun.testing.ScriptedLlm and minirun.simulation are for tests",
        names="AgentEvaluator",
        modules="evaluation",
    ),
    Missing(
        "agents of other processes are not in this version; call them in a tool of your own",
        names="RemoteA2aAgent",
        modules="a2a agents.remote_a2a_agent",
    ),
    Missing(
        "run the graph in a BaseAgent of your own, and emit what it says",
        names="LangGraphAgent",
        modules="agents.langgraph_agent",
    ),
    # google.genai.types
    Missing("a model answers with minirun.models.LlmResponse", names="GenerateContentResponse"),
    Missing("GenerateContentConfig(tools=[...]) takes the FunctionDeclarations themselves", names="Tool"),
)

ABSENT = {name: each.advice for each in _MISSING for name in each.names.split()}
ABSENT_MODULES = {module: each.advice for each in _MISSING for module in each.modules.split()}


def absent(module: str, name: str) -> AttributeError:
    """Return what to raise where *module* has no *name*: with the reason, if ADK has it."""
    reason = _reason_for(f"{module}.{name}")
    if reason:
        return NotSupportedAttributeError(reason, name=name)
    return AttributeError(f"module {module!r} has no attribute {name!r}", name=name)


def _reason_for(where: str) -> str:
    """What to do without the module or name at this place, if ADK has it."""
    path = where.removeprefix("minirun.")
    if path in ABSENT_MODULES:
        return f"minirun has no module {path}: {ABSENT_MODULES[path]}"
    name = path.rpartition(".")[2]
    return f"minirun has no {name}: {ABSENT[name]}" if name in ABSENT else ""


# --- contexts ---------------------------------------------------------------------------------------------------------

_SERVICE = "the Runner has the services; a context has what is done with them"
_OF_NODES = "only what is a node's logic can set it, in the context that it is given"
# Attributes of ADK's contexts that are not here, or not everywhere.
OF_CONTEXTS = {
    "_invocation_context": (
        "every context has itself what that has: `session`, `agent`, `invocation_id`, `user_id`, `run_config`, "
        "`end_invocation` and so on; leave `._invocation_context` out"
    ),
    "artifact_service": f"{_SERVICE}: `save_artifact`, `load_artifact`, `list_artifacts`",
    "credential_service": f"{_SERVICE}: `request_credential`, `load_credential`, `save_credential`",
    "output": f"{_OF_NODES}; an agent emits `Event(output=...)`, a tool returns its result",
    "route": f"{_OF_NODES}; elsewhere nothing follows a route",
    "memory_service": f"{_SERVICE}: `search_memory`, `add_memory`, `add_session_to_memory`",
    "plugin_manager": "plugins are those of the App; an agent has no use for them",
    "session_service": f"{_SERVICE}: `session` with its events, `state` to be written, `emit` to say something",
}


def no_attribute(context: str, name: str) -> AttributeError:
    """Return what to raise for an attribute that a *context* has not: with what to use instead, if ADK's has it."""
    if name in OF_CONTEXTS:
        return NotSupportedAttributeError(f"{context} has no {name}: {OF_CONTEXTS[name]}", name=name)
    return AttributeError(f"{context!r} object has no attribute {name!r}", name=name)


# --- modules by ADK's paths -------------------------------------------------------------------------------------------


def spec_of(module: str) -> ModuleSpec | None:
    """
    Return how a module of the package is imported that has no file; None if there is no such module.

    `from minirun.models import Gemini` looks for a module, too, once the package has no such attribute: an error of
    that search is what the statement raises.

    Raises:
        NotSupportedImportError: It is imported, and one of ADK's that is not here.
    """
    path = module.removeprefix("minirun.")
    if path in PATHS:
        return ModuleSpec(module, _Loader(PATHS[path]), origin="ADK's path", is_package=True)
    reason = _reason_for(module)
    if reason and not _is_question():
        raise NotSupportedImportError(reason, name=module)
    return None


def _is_question() -> bool:
    """Whether the search is `importlib.util.find_spec`, which only asks, and not an import: finders are not told."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") in _SEARCHING:
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == "importlib.util"


_SEARCHING = (__name__, f"{__package__}._lazy", "importlib._bootstrap")


class _Loader(Loader):
    """Makes a module that has the names of others."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # an ordinary one

    def exec_module(self, module: ModuleType) -> None:
        stand = self._stand
        lists = [import_module(f"minirun.{each}") for each in stand.lists]
        module.__doc__ = f"The place that ADK has for names of {' and '.join(each.__name__ for each in lists)}."

        def find(name: str) -> Any:
            for each in lists:
                try:
                    return getattr(each, stand.renamed.get(name, name))
                except AttributeError:
                    pass
            raise absent(module.__name__, name)

        def everything() -> list[str]:
            return sorted({*vars(module), *stand.renamed, *(name for each in lists for name in each.__all__)})

        vars(module).update(__getattr__=find, __dir__=everything)


# --- arguments --------------------------------------------------------------------------------------------------------

_CONFIG_OPTION = "it is a setting of requests: write LlmAgent(generate_content_config=GenerateContentConfig(...))"

# The arguments of ADK's RunConfig that are not here, with what to do instead.
OF_RUN_CONFIG: dict[str, str] = {
    **dict.fromkeys(("http_options", "labels"), _CONFIG_OPTION),
    "service_tier": f"{_CONFIG_OPTION} with extra_body",
    "avatar_config": "no adapter shows a face; leave it out",
    **dict.fromkeys(("enable_affective_dialog", "proactivity"), "live runs are plain conversations here; leave it out"),
    "explicit_vad_signal": "what the server reports of the user's voice is used anyway; leave it out",
    "history_config": "the runtime sends the history itself; leave it out",
    "include_thoughts_from_other_agents": "models are told what others said, not what they thought; leave it out",
    "model_input_context": "add to llm_request.contents in a before_model_callback",
    "save_input_blobs_as_artifacts": "write App(plugins=[SaveFilesAsArtifactsPlugin()]), from minirun.plugins",
    **dict.fromkeys(
        ("save_live_audio", "save_live_blob"),
        "audio is not stored: write event.audio, and what your program sends, to a file or an artifact",
    ),
    "support_cfc": "a live run is Runner.run_live; leave it out",
    "telemetry": "write App(plugins=[TracingPlugin()]), from minirun.plugins",
    "tool_thread_pool_config": (
        "synchronous tools run in worker threads anyway; FunctionTool(f, max_concurrency=...) says how many at once"
    ),
    "translation_config": "no adapter interprets; write what to translate into the instruction of the agent",
}


def refusal(option: str, known: Sequence[str]) -> Exception:
    """Return what to raise for an argument that RunConfig does not take: why, if ADK has it, or which it takes."""
    advice = OF_RUN_CONFIG.get(option)
    if advice is None:
        nearest = next(iter(get_close_matches(option, known, 1)), None)
        hint = "" if nearest is None else f" (did you mean {nearest!r}?)"
        return TypeError(f"RunConfig has no field {option!r}{hint}; it has {', '.join(known)}")
    return NotSupportedError(f"RunConfig.{option} has no effect in this version of minirun; {advice}")
