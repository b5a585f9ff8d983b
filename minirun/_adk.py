"""
Names of Google's ADK: where its modules and names are in minirun, and what replaces the ones that minirun lacks.

The module is loaded when an import, an attribute or an argument fails, or when a module is imported by ADK's path.

*   `PATHS`: a module of ADK, `google.adk.agents.llm_agent`, is `minirun.agents.llm_agent`. It has no code: it returns
    the names of the public lists that the table gives for it.
*   `ADVICE`: the one table of names that minirun lacks, with what to do instead. `advice_for` is the one lookup.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from .errors import NotSupportedAttributeError, NotSupportedError, NotSupportedImportError

__all__ = ["ADVICE", "PATHS", "absent", "advice_for", "check_arguments", "no_attribute", "refusal", "spec_of"]


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


_CLOUD = "there is no adapter for this cloud service"
_SERVICE = "the Runner has the services; a context has what is done with them"
_OF_NODES = "only what is a node's logic can set it, in the context that it is given"
_CONFIG_OPTION = "it is a setting of requests: write LlmAgent(generate_content_config=GenerateContentConfig(...))"

_ROWS: tuple[tuple[str, str], ...] = (
    # services
    (
        f"{_CLOUD}; use minirun.sessions.SqliteSessionService(path)",
        "VertexAiSessionService .sessions.vertex_ai_session_service",
    ),
    (
        f"{_CLOUD}; use minirun.artifacts.SqliteArtifactService or FileArtifactService, or implement "
        "BaseArtifactService",
        "GcsArtifactService .artifacts.gcs_artifact_service",
    ),
    (
        f"{_CLOUD}; use minirun.memory.SqliteMemoryService(path), or implement BaseMemoryService",
        "VertexAiMemoryBankService VertexAiRagMemoryService .memory.vertex_ai_memory_bank_service "
        ".memory.vertex_ai_rag_memory_service",
    ),
    # credentials
    (
        "a secret never stands in a state, which is stored and shown; use minirun.credentials.KeyringCredentialService",
        "SessionStateCredentialService .auth.credential_service.session_state_credential_service",
    ),
    (
        "say which credential is needed by minirun.credentials.AuthConfig(credential_key=..., scheme=...), whose "
        "scheme is a text: 'api_key', 'bearer', 'basic', 'oauth2' or 'custom'",
        "AuthCredentialTypes AuthSchemeType HttpAuth HttpCredentials ServiceAccount .auth.auth_handler "
        ".auth.auth_preprocessor",
    ),
    (
        "write AuthConfig(..., auth_scheme=minirun.credentials.AuthScheme(...), raw_auth_credential="
        "AuthCredential('client', client_id=..., client_secret=...))",
        "OAuth2Auth OpenIdConnectWithConfig",
    ),
    # plugins
    (
        "use minirun.plugins.TracingPlugin with an OpenTelemetry exporter, such as that of Google Cloud",
        "CloudTracePlugin",
    ),
    (
        f"{_CLOUD}; use minirun.plugins.TracingPlugin, or a BasePlugin whose on_event_callback exports",
        "BigQueryAgentAnalyticsPlugin .plugins.bigquery_agent_analytics_plugin",
    ),
    (
        "save what a tool makes as an artifact: tool_context.save_artifact",
        "MultimodalToolResultsPlugin .plugins.multimodal_tool_results_plugin",
    ),
    # models, and what works with those of one provider
    (
        "import minirun.models.gemini.Gemini, which needs minirun[models], and give it a key",
        "Gemini .models.google_llm",
    ),
    (
        "import minirun.models.anthropic.Claude, which needs minirun[models], and give it a key",
        "AnthropicLlm Claude .models.anthropic_llm",
    ),
    (
        "give minirun.models.openai.OpenAIChat the base_url of the server; all that speak chat completions will do",
        "Gemma3Ollama LiteLlm .models.lite_llm",
    ),
    (
        "there is no adapter for it; write a subclass of minirun.models.BaseLlm",
        "ApigeeLlm Gemma .models.apigee_llm .models.gemma_llm",
    ),
    (
        "minirun runs no code that a model writes; give the agent a tool that sends it to a sandbox",
        "AgentEngineSandboxCodeExecutor BaseCodeExecutor BuiltInCodeExecutor CodeExecutorContext ContainerCodeExecutor "
        "GkeCodeExecutor UnsafeLocalCodeExecutor VertexAiCodeExecutor LlmAgent.code_executor .code_executors "
        ".code_executors.agent_engine_sandbox_code_executor .code_executors.base_code_executor "
        ".code_executors.built_in_code_executor .code_executors.code_execution_utils "
        ".code_executors.container_code_executor .code_executors.gke_code_executor "
        ".code_executors.unsafe_local_code_executor .code_executors.vertex_ai_code_executor",
    ),
    (
        "write the plan into the instruction, or use minirun.planners.BuiltInPlanner for the model's own thinking",
        "BasePlanner PlanReActPlanner .planners.base_planner .planners.plan_re_act_planner",
    ),
    (
        "write the text of the API instead, such as 'HARM_CATEGORY_HARASSMENT', in minirun.types.SafetySetting",
        "HarmBlockThreshold HarmCategory",
    ),
    ("write minirun.agents.LlmAgent(model_retry=...), which all providers have", "HttpRetryOptions"),
    ("no adapter has an equal of it; leave it out", "AutomaticFunctionCallingConfig VideoMetadata"),
    (
        "a live model speaks with one voice, by its name: minirun.types.PrebuiltVoiceConfig(voice_name=...)",
        "MultiSpeakerVoiceConfig ReplicatedVoiceConfig SpeakerVoiceConfig VoiceConsentSignature",
    ),
    ("no adapter shows a face or interprets; leave it out", "AvatarConfig CustomizedAvatar TranslationConfig"),
    # tools
    ("import it from minirun.tools.openapi, which needs minirun[models]", "OpenAPIToolset RestApiTool"),
    (
        "give minirun.tools.openapi.OpenAPIToolset the OpenAPI document of the API",
        "APIHubToolset ApplicationIntegrationToolset .tools.apihub_tool .tools.application_integration_tool "
        ".tools.google_api_tool",
    ),
    ("import McpToolset from minirun.tools.mcp, which needs an extra", "MCPToolset McpToolset"),
    ("a minirun.tools.mcp.McpToolset makes them", "MCPTool McpTool .tools.mcp_tool.mcp_tool"),
    ("give the URL of the server's streamable HTTP, which has taken its place", "SseConnectionParams"),
    ("write a minirun.tools.BaseToolset that asks the server", "ToolboxToolset .tools.toolbox_toolset"),
    (
        "it searches at one provider; give the agent a function of your own that searches",
        "DiscoveryEngineSearchTool VertexAiSearchTool enterprise_web_search google_maps_grounding google_search "
        "url_context .tools.enterprise_search_tool .tools.google_search_tool .tools.retrieval .tools.url_context_tool "
        ".tools.vertex_ai_search_tool",
    ),
    (
        "give the agent the function that the tool of the other framework wraps",
        "CrewaiTool LangchainTool .tools.crewai_tool .tools.langchain_tool",
    ),
    (
        "write the examples into the instruction of the agent",
        "BaseExampleProvider Example ExampleTool .examples .tools.example_tool",
    ),
    (
        "ask for the credential in the function: await tool_context.get_credential(AuthConfig(...))",
        "AuthenticatedFunctionTool .tools.authenticated_function_tool",
    ),
    # agents and runs
    (
        "synchronous tools run in worker threads anyway; FunctionTool(f, max_concurrency=...) says how many at once",
        "ToolThreadPoolConfig RunConfig.tool_thread_pool_config",
    ),
    (
        "the runtime keeps the tools of a live run itself; leave it out",
        "ActiveStreamingTool .agents.active_streaming_tool",
    ),
    ("a live model is one that speaks, by a minirun.models.BaseLlmConnection", ".live"),
    ("subclass minirun.workflow.Node, and override run_node_impl", "BaseNode"),
    (
        "evaluation is not in this version; minirun.testing.ScriptedLlm and minirun.simulation are for tests",
        "AgentEvaluator .evaluation",
    ),
    (
        "agents of other processes are not in this version; call them in a tool of your own",
        "RemoteA2aAgent .a2a .agents.remote_a2a_agent",
    ),
    ("run the graph in a BaseAgent of your own, and emit what it says", "LangGraphAgent .agents.langgraph_agent"),
    # google.genai.types
    ("a model answers with minirun.models.LlmResponse", "GenerateContentResponse"),
    ("GenerateContentConfig(tools=[...]) takes the FunctionDeclarations themselves", "Tool"),
    # attributes of contexts
    (
        "every context has itself what that has: `session`, `agent`, `invocation_id`, `user_id`, `run_config`, "
        "`end_invocation` and so on; leave `._invocation_context` out",
        "ReadonlyContext._invocation_context",
    ),
    (f"{_SERVICE}: `save_artifact`, `load_artifact`, `list_artifacts`", "ReadonlyContext.artifact_service"),
    (
        f"{_SERVICE}: `request_credential`, `load_credential`, `save_credential`",
        "ReadonlyContext.credential_service",
    ),
    (f"{_SERVICE}: `search_memory`, `add_memory`, `add_session_to_memory`", "ReadonlyContext.memory_service"),
    (
        f"{_SERVICE}: `session` with its events, `state` to be written, `emit` to store an event",
        "ReadonlyContext.session_service",
    ),
    (f"{_OF_NODES}; an agent emits `Event(output=...)`, a tool returns its result", "ReadonlyContext.output"),
    (f"{_OF_NODES}; nothing else follows a route", "ReadonlyContext.route"),
    ("plugins are those of the App; an agent has no use for them", "ReadonlyContext.plugin_manager"),
    # arguments of agents, apps and tools
    ("write the agent into the sub_agents of its parent", "BaseAgent.parent_agent"),
    (
        "write LlmAgent(model_retry=...) for its model, and FunctionTool(f, retry=...) for a tool",
        "LlmAgent.retry_config",
    ),
    ("write RunConfig(deadline_s=...)", "LlmAgent.timeout"),
    ("the plugins of the app see the nested agent, too; leave it out", "AgentTool.include_plugins"),
    ("grounding metadata is in the events of the agent; leave it out", "AgentTool.propagate_grounding_metadata"),
    (
        "write App(resumability_config=...), or leave it out: every invocation can be resumed",
        "Runner.resumability_config",
    ),
    # fields of values
    (
        "no adapter sets it; leave it out",
        "Event.avg_logprobs Event.interaction_id Event.logprobs_result LlmResponse.avg_logprobs "
        "LlmResponse.interaction_id LlmResponse.logprobs_result Part.part_metadata Part.tool_call Part.tool_response "
        "FunctionCall.partial_args FunctionCall.will_continue",
    ),
    ("no adapter has an equal of it; leave it out", "Part.media_resolution Part.video_metadata SafetySetting.method"),
    ("write parameters=..., which takes a JSON schema", "FunctionDeclaration.parameters_json_schema"),
    ("write LlmAgent(output_schema=...)", "GenerateContentConfig.response_json_schema"),
    (
        "write RunConfig(...) for Runner.run_live",
        "GenerateContentConfig.response_modalities GenerateContentConfig.speech_config",
    ),
    (
        "no adapter sends it; if the provider has it, write extra_body={...}",
        "GenerateContentConfig.audio_timestamp GenerateContentConfig.candidate_count "
        "GenerateContentConfig.image_config "
        "GenerateContentConfig.logprobs GenerateContentConfig.media_resolution GenerateContentConfig.response_logprobs "
        "GenerateContentConfig.routing_config GenerateContentConfig.model_selection_config",
    ),
    ("tools are called by minirun; leave it out", "GenerateContentConfig.automatic_function_calling"),
    (
        "give it to the model object, if its class has it; a request has `timeout` alone",
        "HttpOptions.aiohttp_client HttpOptions.api_version HttpOptions.async_client_args HttpOptions.base_url "
        "HttpOptions.base_url_resource_scope HttpOptions.client_args HttpOptions.extra_body HttpOptions.headers "
        "HttpOptions.httpx_async_client HttpOptions.httpx_client HttpOptions.retry_options",
    ),
    # settings of live runs
    ("no adapter can copy a voice; name one with prebuilt_voice_config", "VoiceConfig.replicated_voice_config"),
    ("write prebuilt_voice_config=PrebuiltVoiceConfig(voice_name=...)", "VoiceConfig.voice"),
    ("a live model speaks with one voice; write voice_config", "SpeechConfig.multi_speaker_voice_config"),
    ("write custom_vocabulary", "AudioTranscriptionConfig.adaptation_phrases"),
    ("a transcript has no speakers here; leave it out", "AudioTranscriptionConfig.diarization"),
    (
        "the server finds the language out, unless language_codes are given; leave it out",
        "AudioTranscriptionConfig.language_auto",
    ),
    ("write language_codes", "AudioTranscriptionConfig.language_hints"),
    ("a transcript is what was said, and no edited text; leave it out", "AudioTranscriptionConfig.source_text"),
    (
        "a transcript has no times here; leave it out",
        "AudioTranscriptionConfig.word_timestamp RealtimeInputConfig.interim_transcript_timestamp_enabled",
    ),
    # arguments of RunConfig
    (_CONFIG_OPTION, "RunConfig.http_options RunConfig.labels"),
    (f"{_CONFIG_OPTION} with extra_body", "RunConfig.service_tier"),
    ("no adapter shows a face; leave it out", "RunConfig.avatar_config"),
    (
        "models are told what others said, not what they thought; leave it out",
        "RunConfig.include_thoughts_from_other_agents",
    ),
    ("add to llm_request.contents in a before_model_callback", "RunConfig.model_input_context"),
    (
        "write App(plugins=[SaveFilesAsArtifactsPlugin()]), from minirun.plugins",
        "RunConfig.save_input_blobs_as_artifacts",
    ),
    ("live runs are plain conversations here; leave it out", "RunConfig.enable_affective_dialog RunConfig.proactivity"),
    ("what the server reports of the user's voice is used anyway; leave it out", "RunConfig.explicit_vad_signal"),
    ("the runtime sends the history itself; leave it out", "RunConfig.history_config"),
    (
        "audio is not stored: write event.audio, and what your program sends, to a file or an artifact",
        "RunConfig.save_live_audio RunConfig.save_live_blob",
    ),
    ("a live run is Runner.run_live; leave it out", "RunConfig.support_cfc"),
    ("write App(plugins=[TracingPlugin()]), from minirun.plugins", "RunConfig.telemetry"),
    (
        "no adapter interprets; write what to translate into the instruction of the agent",
        "RunConfig.translation_config",
    ),
    # methods of session services that a run does not call
    (
        "to see or change events before they are stored use a plugin (on_event_callback, on_user_message_callback), to "
        "store them somewhere else override commit_event, and to append from outside use a function of your own",
        "BaseSessionService.append_event",
    ),
    (
        "to choose what a run sees use RunConfig(get_session_config=...) or a plugin (before_model_callback), and to "
        "read from outside a function of your own",
        "BaseSessionService.get_session",
    ),
    # objects that are awaited, iterated over or entered in another way
    ("a bridge is not awaited; write `async with AsyncioBridge(runner) as chat:`", "AsyncioBridge.*"),
    (
        "closing has to wait, so it is `async with`, and not `with`; what needs not be closed is used without either",
        "BaseService.* Runner.*",
    ),
    (
        "this run is asynchronous; write `async for event in chat.run_async(...):` or, for its answer, "
        "`await chat.run_async(...).wait()`; a synchronous program has `for event in chat.run(...):`",
        "BridgeRun.*",
    ),
    ("this is the run that `async with` has entered; write `async for event in run:` or `await run.wait()`", "Run.*"),
    (
        "a run is a scope, so that leaving it can clean up; write "
        "`async with runner.run_async(...) as run:` and in it `async for event in run:` or `await run.wait()`",
        "RunScope.*",
    ),
)

ADVICE = {key: advice for advice, keys in _ROWS for key in keys.split()}
"""
By what is missing, what to do instead: `Gemini` is a name of any module, `.models.google_llm` a module below
`minirun`, `RunConfig.labels` an argument or an attribute of a class, `Run.*` a use of its objects.
"""


def advice_for(name: str, owner: type | None = None) -> str:
    """Return what to do without a name, or without an argument or attribute of a class; "" if the table lacks it."""
    keys = [f"{cls.__name__}.{name}" for cls in owner.__mro__] if owner is not None else [name]
    return next((ADVICE[key] for key in keys if key in ADVICE), "")


def absent(module: str, name: str) -> AttributeError:
    """Return what to raise if *module* has no *name*, with the advice of the table."""
    reason = _reason_for(f"{module}.{name}")
    if reason:
        return NotSupportedAttributeError(reason, name=name)
    return AttributeError(f"module {module!r} has no attribute {name!r}", name=name)


def _reason_for(where: str) -> str:
    path = where.removeprefix("minirun")
    if advice := advice_for(path):
        return f"minirun has no module {path[1:]}: {advice}"
    name = path.rpartition(".")[2]
    return f"minirun has no {name}: {advice}" if (advice := advice_for(name)) else ""


def no_attribute(context: type, name: str) -> AttributeError:
    """Return what to raise for an attribute that a *context* lacks, with the advice of the table."""
    if advice := advice_for(name, context):
        return NotSupportedAttributeError(f"{context.__name__} has no {name}: {advice}", name=name)
    return AttributeError(f"{context.__name__!r} object has no attribute {name!r}", name=name)


def refusal(cls: type, name: str, known: Collection[str]) -> Exception:
    """Return what to raise for an argument that a class does not take: the advice of the table, or the nearest name."""
    if advice := advice_for(name, cls):
        return NotSupportedError(f"{cls.__name__}.{name} has no effect in this version of minirun; {advice}")
    nearest = get_close_matches(name, known, 1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"it takes {', '.join(known) or 'none'}"
    return TypeError(f"{cls.__name__} got an unexpected keyword argument {name!r}; {hint}")


def check_arguments(cls: type, construct: Callable[..., None], given: Iterable[str]) -> None:
    """Raise if an argument by name is not one of *construct*, which is a constructor of *cls* or of a base of it."""
    accepted = inspect.signature(construct).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in accepted):
        return
    known = {each.name: None for each in (*accepted, *inspect.signature(cls).parameters.values())}
    for name in given:
        if name not in inspect.signature(construct).parameters:
            raise refusal(cls, name, [each for each in known if each not in ("self", "args", "options")]) from None


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
