"""
Where workflows of minirun do something else than the peer's, in the traces t06 and t13, and why.

Each reason names the rule (R), defect (W) or promise (P) that it follows from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["DIFFERENCES", "OUT_OF_SCOPE", "PENDING"]

ANNOTATION = (
    "R4: a value is read where it is given to a function; what the function before it returns is written as it is"
)
ATTEMPTS = "W15: a failed attempt is a note that is no failure, and what it has written to the state is dropped"
AT_ONCE = "P2: an outcome is stored as soon as the run has ended, and not when others have, too"
CANCELLED = "a cancelled task sees trio's exception, which has another name"
CAUGHT = "R10: the child's own exception is raised in its parent"
CHAT = "W45: a chat never ends, so what stands behind it would never run: it is refused in a graph"
CONFIRMED = "W26: a refusal fails the node; the id of a question is the one that all questions have"
DYNAMIC = "W13: runs are told apart by their place and input, so two inputs are two runs"
FINISHED = "R2: the response of finish_task is that of a tool, and the outcome of the node is an event of its own"
FORM = "an answer that does not fit is stored, and the model is asked again, as outside of workflows"
GOES_ON = "R9: the node goes on where it has asked; there is no `resume_inputs`, and no second input of the run"
JOINS = "W3: a predecessor that was not chosen is left out; the join fires, and the workflow has an output"
MARKED = "what has failed or was cancelled is gone on with by an event of the log, which says so"
NESTED = "W34: every agent that is a node but an LlmAgent has an outcome of its own, a workflow, too"
NONE = "W8: a run that returned None has an outcome, which is stored; it is not run again"
NULLS = "a value is stored with its fields that are None: the class that it is read as need not have defaults"
ONE_OUTPUT = (
    "W16: the output is stored at the end of the run, in one event with the route; a second one is refused before"
)
OUTCOME_OF_QUESTION = (
    "R2: the answer is the output of the node that has asked, in an event of its own; the node is entered again"
)
QUESTION = "R11: what a task says to the user is a question, which a plain message answers; the log has both"
REFUSED = "W6: what gives two outputs is refused when the graph is made"
ROUTE = "W5: a route that leads nowhere is an error of the node, and its outcome is not stored"
SCHEMA_FIRST = "the output is checked before it is stored"
SECOND = "W6, W7: a second output of the workflow is refused before it is stored and before anything further starts"
STATE_CONFLICTS = "R14: an event names the keys that a lane beside it has written"
STRICT = "R4: values are read as arguments of tools are: a string is no number"
TOOLS = "R11: the call of a tool is stored and answered, in a node as everywhere (P6)"
TOO_LATE = "P7: with a failure what goes on beside it is cancelled; nothing is stored after the node's own failure"
TRUE = "W31: `True` does not match the route 1"
USED = "W12: the output is what the node returns, before and after a resume"
W1_ = "W1, W8: a node that has ended is not run again, whatever it has said"
WHERE = "W20: the failure is that of the node, inside of its attempts, and its type is one for all inputs"
WRITTEN = (
    "W9, W10: what is returned is written as JSON at once, as results of tools are, so every run sees the same value"
)

_RESUMABLE = "there is no setting: an invocation can always be gone on with, without events that say where it stands"
_STYLES = "weakness 34: there is one way to call an agent, AgentTool, and one to hand over, transfer"

OUT_OF_SCOPE: Mapping[tuple[str, str], str] = {
    ("t06", "HITL RequestInput, rerun_on_resume=False (resumable=True)"): _RESUMABLE,
    (
        "t13",
        "the caller leaves while the fourth node runs; resumed by invocation id (resumable=True)",
    ): _RESUMABLE,
    ("t13", "coordinator with a single_turn and a task sub-agent"): _STYLES,
}
"""Scenarios of the traces that are not compared."""

PENDING: frozenset[str] = frozenset()
"""Titles of scenarios that need what is not built yet."""

DIFFERENCES: Mapping[tuple[str, str], Mapping[str, Sequence[str]]] = {
    ("t06", "route with no matching edge"): {
        ROUTE: [
            "2: actions: {route:other,state_delta:{seen:hello}} there, null here",
            "2: output: HELLO there, null here",
            "2: error: null there, RouteError here",
            "before 3: only here: exception RouteError",
            "stored: state: {seen:hello} there, {} here",
        ],
    },
    ("t06", "two terminal outputs (no join)"): {
        REFUSED: [
            "1: only there: turn 1",
            "2: only there: note fast",
            "3: only there: event wf node=wf@1/fast@1 output=f:x ends=true",
            "4: only there: note slow",
            "5: only there: event wf node=wf@1/slow@1 output=s:x ends=true",
            "6: only there: event wf error=ValueError node=wf@1",
        ],
    },
    ("t06", "retry_config: fails twice then succeeds"): {
        ATTEMPTS: [
            "3: error: ConnectionError there, null here",
            "5: error: ConnectionError there, null here",
        ],
    },
    ("t06", "HITL RequestInput, rerun_on_resume=False (resumable=False)"): {
        OUTCOME_OF_QUESTION: [
            "before 5: only here: note ask ran",
            "5: node: wf@1/done@1 there, wf@1/ask@1 here",
            "5: output: {answer:yes} there, yes here",
            "5: ends: true there, null here",
            "before 6: only here: event wf node=wf@1/done@1 output={answer:yes} ends=true",
            "stored: log: user:text wf:call user:response wf:- there, user:text wf:call user:response wf:- wf:- here",
        ],
    },
    ("t06", "HITL RequestInput, rerun_on_resume=True"): {
        GOES_ON: [
            "2: resume: {} there, null here",
            "5: resume: {q2:Bob} there, null here",
        ],
    },
    ("t06", "nested workflow"): {
        NESTED: [
            "before 3: only here: event inner node=wf@1/inner@1 output={billed:bill me}",
        ],
    },
    ("t06", "node yields two outputs"): {
        ONE_OUTPUT: [
            "2: output: a there, null here",
            "2: ends: true there, null here",
            "2: error: null there, WorkflowError here",
            "3: only there: event wf error=ValueError node=wf@1/two@1",
            "4: only there: exception ValueError",
            "before 5: only here: exception WorkflowError",
        ],
    },
    ("t06", "node returns None then a downstream node"): {
        NONE: [
            "2: node: wf@1/done@1 there, wf@1/nothing@1 here",
            "2: output: {answer:null} there, null here",
            "2: ends: true there, null here",
            "before 3: only here: event wf node=wf@1/done@1 output={answer:null} ends=true",
        ],
    },
    ("t13", "join: one predecessor returns None"): {
        NONE: [
            "before 3: only here: event wf node=wf@1/a@1 output=a",
            "4: node: wf@1/a@1 there, wf@1/quiet@1 here",
            "4: output: a there, null here",
        ],
    },
    ("t13", "join: one predecessor is not chosen by the route"): {
        JOINS: [
            "before 5: only here: event wf node=wf@1/join@1 output={left:left}",
            "before 5: only here: note end input={left:left}",
            "before 5: only here: event wf node=wf@1/end@1 output=end ends=true",
        ],
    },
    ("t13", "fan-in without a join: the sink is terminal"): {
        SECOND: [
            "9: output: sink there, null here",
            "9: ends: true there, null here",
            "9: error: null there, SecondOutputError here",
            "before 10: only here: exception SecondOutputError",
        ],
    },
    ("t13", "route is a list: two of three edges match"): {
        SECOND: [
            "before 4: only here: event wf node=wf@1/nx@1 output=nx ends=true",
            "5: node: wf@1/nx@1 there, wf@1/nz@1 here",
            "5: output: nx there, null here",
            "5: ends: true there, null here",
            "5: error: null there, SecondOutputError here",
            "6: only there: event wf node=wf@1/nz@1 output=nz ends=true",
            "7: only there: event wf error=ValueError node=wf@1",
            "8: only there: exception ValueError",
            "before 9: only here: exception SecondOutputError",
        ],
    },
    ("t13", "route True, edges for 1 and for DEFAULT"): {
        TRUE: [
            "3: only there: note one input=p",
            "before 4: only here: note fallback input=p",
            "4: node: wf@1/one@1 there, wf@1/fallback@1 here",
            "4: output: one there, fallback here",
        ],
    },
    ("t13", "an unrouted edge beside DEFAULT; the route matches nothing"): {
        SECOND: [
            "before 4: only here: event wf node=wf@1/always@1 output=always ends=true",
            "5: node: wf@1/always@1 there, wf@1/fallback@1 here",
            "5: output: always there, null here",
            "5: ends: true there, null here",
            "5: error: null there, SecondOutputError here",
            "6: only there: event wf node=wf@1/fallback@1 output=fallback ends=true",
            "7: only there: event wf error=ValueError node=wf@1",
            "8: only there: exception ValueError",
            "before 9: only here: exception SecondOutputError",
        ],
    },
    ("t13", "output and two routes in separate events"): {
        ONE_OUTPUT: [
            "before 2: only here: note after the routes",
            "2: actions: null there, {route:r2} here",
            "3: only there: event wf actions={route:r1} node=wf@1/late@1",
            "4: only there: event wf actions={route:r2} node=wf@1/late@1",
            "5: only there: note after the routes",
        ],
    },
    ("t13", "the terminal node returns None"): {
        NONE: [
            "before 4: only here: event wf node=wf@1/nothing@1",
        ],
    },
    ("t13", "two lanes write one state key"): {
        STATE_CONFLICTS: [
            "3: actions: {state_delta:{k:left}} there, {state_conflicts:[k],state_delta:{k:left}} here",
        ],
    },
    ("t13", "return annotation is a model: dict is coerced, None is dropped"): {
        NULLS: [
            "2: output: {n:3} there, {n:3,note:null} here",
        ],
    },
    ("t13", "return annotation is a model: the value does not fit"): {
        ANNOTATION: [
            "4: error: ValidationError there, null here",
            "4: output: null there, {n:three,note:null} here",
            "5: only there: exception ValidationError",
            "before 6: only here: event wf error=ValueError node=wf@1/use@1",
            "before 6: only here: exception ValueError",
        ],
    },
    ("t13", "node_input annotation list[int]: strings are coerced"): {
        STRICT: [
            "3: only there: note take got=[1,2]",
            "4: output: 3 there, null here",
            "4: ends: true there, null here",
            "4: error: null there, ValueError here",
            "before 5: only here: exception ValueError",
        ],
    },
    ("t13", "first node takes a model; the user says 'four'"): {
        WHERE: [
            "2: error: ValidationError there, ValueError here",
            "2: node: wf@1 there, wf@1/take@1 here",
            "3: only there: exception ValidationError",
            "before 4: only here: exception ValueError",
        ],
    },
    ("t13", "parameters come from state {'city': 'Bonn', 'size': '7'}"): {
        STRICT: [
            "2: only there: note take city=Bonn size=7",
            "3: output: Bonn there, null here",
            "3: ends: true there, null here",
            "3: error: null there, ValueError here",
            "before 4: only here: exception ValueError",
        ],
    },
    ("t13", "parameters come from state {}"): {
        WHERE: [
            "2: error: WorkflowDataError there, ValueError here",
            "3: only there: exception WorkflowDataError",
            "before 4: only here: exception ValueError",
        ],
    },
    ("t13", "output_schema of the workflow does not fit the terminal output"): {
        SCHEMA_FIRST: [
            "3: output: {n:zz} there, null here",
            "3: ends: true there, null here",
            "3: error: null there, WorkflowError here",
            "4: only there: event wf error=ValidationError node=wf@1",
            "5: only there: exception ValidationError",
            "before 6: only here: exception WorkflowError",
        ],
    },
    ("t13", "node returns a datetime and a set"): {
        WRITTEN: [
            "2: output: {ids:<set>,when:<datetime>} there, {ids:[1],when:2026-01-01T00:00:00} here",
            "3: input: {ids:<set>,when:<datetime>} there, {ids:[1],when:2026-01-01T00:00:00} here",
        ],
    },
    ("t13", "retry: all three attempts fail"): {
        ATTEMPTS: [
            "3: actions: {state_delta:{tries:1}} there, null here",
            "3: error: ConnectionError there, null here",
            "4: tries: 2 there, 1 here",
            "5: actions: {state_delta:{tries:2}} there, null here",
            "5: error: ConnectionError there, null here",
            "6: tries: 3 there, 1 here",
            "7: actions: {state_delta:{tries:3}} there, null here",
            "stored: state: {tries:3} there, {} here",
        ],
    },
    ("t13", "timeout per attempt, retried once"): {
        ATTEMPTS: [
            "4: error: TimeoutError there, null here",
        ],
    },
    ("t13", "a node fails after its output was stored, and is retried"): {
        ONE_OUTPUT: [
            "before 2: only here: note after output n=1",
            "2: output: out1 there, null here",
            "3: n: 1 there, 2 here",
            "4: output: null there, out2 here",
            "5: only there: event wf node=wf@1/g@1 output=out2",
            "6: only there: note after output n=2",
        ],
        ATTEMPTS: [
            "4: error: ConnectionError there, null here",
        ],
    },
    ("t13", "retry_config on a nested workflow: its second node fails once"): {
        ATTEMPTS: [
            "before 5: only here: event wf node=wf@1/inner@1",
            "before 5: only here: note flaky n=2",
            "5: error: ConnectionError there, null here",
            "5: output: null there, ok here",
            "6: only there: note flaky n=2",
        ],
        NESTED: [
            "7: node: wf@1/inner@1/flaky@1 there, wf@1/inner@1 here",
        ],
    },
    ("t13", "a dynamic child fails and its parent catches that"): {
        CAUGHT: [
            "3: type: DynamicNodeFailError there, ValueError here",
            "3: text: Dynamic node bad failed there, child is bad here",
            "3: inner: ValueError there, null here",
        ],
    },
    ("t13", "run_node twice with one run_id, then without"): {
        DYNAMIC: [
            "before 3: only here: event wf node=wf@1/parent@1/child@1 output=2",
            "before 3: only here: note child i=2",
            "3: node: wf@1/parent@1/child@first there, wf@1/parent@1/child@2 here",
            "3: output: 2 there, 4 here",
            "5: node: wf@1/parent@1/child@1 there, wf@1/parent@1/child@3 here",
            "6: output: [2,2,6] there, [2,4,6] here",
        ],
    },
    ("t13", "use_as_output: the output of an agent called by a node is the output of the node"): {
        USED: [
            "before 5: only here: event wf node=wf@1/parent@1 output=helper says hi",
            "5: input: never shown there, helper says hi here",
        ],
    },
    ("t13", "parallel_worker over four items, two at a time"): {
        AT_ONCE: [
            "before 6: only here: event wf actions={state_delta:{w2:1}} node=wf@1/work@1/work@2 output=20",
            "before 6: only here: note start i=3",
            "7: actions: {state_delta:{w2:1}} there, {state_delta:{w1:1}} here",
            "7: node: wf@1/work@1/work@2 there, wf@1/work@1/work@1 here",
            "7: output: 20 there, 10 here",
            "8: only there: event wf actions={state_delta:{w1:1}} node=wf@1/work@1/work@1 output=10",
            "9: only there: note start i=3",
        ],
    },
    ("t13", "parallel_worker: the second of three items fails"): {
        TOO_LATE: [
            "6: only there: note work i=3",
            "8: node: wf@1/work@1/work@3 there, wf@1/work@1/work@2 here",
            "8: output: 3 there, null here",
            "8: error: null there, ValueError here",
        ],
    },
    ("t13", "two lanes ask; answered one at a time"): {
        AT_ONCE: [
            "before 3: only here: event wf kinds=[call] node=wf@1/ask_q1@1 asks=true",
            "before 4: only here: event wf kinds=[call] node=wf@1/ask_q2@1 asks=true",
            "5: only there: event wf kinds=[call] node=wf@1/ask_q1@1 asks=true",
            "6: only there: event wf kinds=[call] node=wf@1/ask_q2@1 asks=true",
        ],
        OUTCOME_OF_QUESTION: [
            "before 9: only here: note asks q1",
            "before 9: only here: event wf node=wf@1/ask_q1@1 output=A1",
            "before 9: only here: note asks q2",
            "before 10: only here: note asks q2",
            "before 10: only here: event wf node=wf@1/ask_q2@1 output=A2",
            (
                "stored: log: user:text wf:call wf:call wf:- user:response user:response wf:- wf:- there, user:text "
                "wf:call wf:call wf:- user:response wf:- user:response wf:- wf:- wf:- here"
            ),
        ],
    },
    ("t13", "a person sends a draft back once (one interrupt id for both rounds)"): {
        GOES_ON: [
            "4: run_id: 1 there, null here",
            "7: ans: redo there, null here",
            "7: run_id: 1 there, null here",
            "11: run_id: 2 there, null here",
            "14: ans: fine there, null here",
            "14: run_id: 2 there, null here",
        ],
    },
    ("t13", "a dynamic child asks; its parent runs again from its start"): {
        OUTCOME_OF_QUESTION: [
            "before 9: only here: note asks dyn",
            "before 9: only here: event wf node=wf@1/parent@1/ask_dyn@1 output=yes",
            (
                "stored: log: user:text wf:- wf:call user:response wf:- wf:- wf:- there, user:text wf:- wf:call "
                "user:response wf:- wf:- wf:- wf:- here"
            ),
        ],
    },
    ("t13", "a question inside of a nested workflow"): {
        OUTCOME_OF_QUESTION: [
            "before 9: only here: note asks nq",
            "before 9: only here: event inner node=wf@1/inner@1/ask_nq@1 output=A",
            (
                "stored: log: user:text wf:- inner:- inner:call user:response inner:- wf:- there, user:text wf:- "
                "inner:- inner:call user:response inner:- inner:- inner:- wf:- here"
            ),
        ],
        NESTED: [
            "before 10: only here: event inner node=wf@1/inner@1/behind@1 output=behind",
            "10: node: wf@1/inner@1/behind@1 there, wf@1/inner@1 here",
        ],
    },
    ("t13", "one item of a map asks"): {
        GOES_ON: [
            "3: resume: {} there, null here",
            "4: resume: {} there, null here",
            "5: resume: {} there, null here",
            "10: resume: {m2:go} there, null here",
        ],
        AT_ONCE: [
            "before 4: only here: event wf node=wf@1/work@1/work@1 output=10",
            "before 5: only here: event wf kinds=[call] node=wf@1/work@1/work@2 asks=true",
            "6: only there: event wf node=wf@1/work@1/work@1 output=10",
            "7: only there: event wf kinds=[call] node=wf@1/work@1/work@2 asks=true",
        ],
    },
    ("t13", "require_confirmation on a node; the answer is True"): {
        CONFIRMED: [
            "3: only there: note interrupt id id=wf_tool_confirmation:wf@1/wipe@1",
        ],
    },
    ("t13", "require_confirmation on a node; the answer is False"): {
        CONFIRMED: [
            "3: only there: note interrupt id id=wf_tool_confirmation:wf@1/wipe@1",
            "5: output: {error:This tool call is rejected.} there, null here",
            "5: error: null there, NodeRejectedError here",
            "6: only there: note end input={error:This tool call is rejected.}",
            "7: only there: event wf node=wf@1/end@1 output=end ends=true",
            "before 8: only here: exception NodeRejectedError",
            "stored: log: user:text wf:call user:response wf:- wf:- there, user:text wf:call user:response wf:- here",
        ],
    },
    ("t13", "the caller leaves while the fourth node runs; resumed by invocation id (resumable=False)"): {
        W1_: [
            "before 5: only here: event wf node=wf@1/silent@1",
            "10: only there: note silent ran",
        ],
        CANCELLED: [
            "8: type: CancelledError there, null here",
        ],
        MARKED: [
            "stored: log: user:text wf:- wf:- wf:- wf:- there, user:text wf:- wf:- wf:- user:- wf:- wf:- here",
        ],
    },
    ("t13", "a failed workflow is resumed by its invocation id"): {
        AT_ONCE: [
            "before 3: only here: event wf node=wf@1/a@1 output=a",
            "4: only there: event wf node=wf@1/a@1 output=a",
        ],
        MARKED: [
            "stored: log: user:text wf:- wf:- wf:- wf:- wf:- there, user:text wf:- wf:- user:- wf:- wf:- wf:- here",
        ],
    },
    ("t13", "plain text while a question is open, then the answer"): {
        OUTCOME_OF_QUESTION: [
            "before 12: only here: note asks q",
            "before 12: only here: event wf node=wf@1/ask_q@1 output=late",
            (
                "stored: log: user:text wf:- wf:call user:text wf:- wf:call user:response wf:- there, user:text wf:- "
                "wf:call user:text wf:- wf:call user:response wf:- wf:- here"
            ),
        ],
    },
    ("t13", "agent with output_schema as a node"): {
        NULLS: [
            "3: actions: {state_delta:{order:{n:5}}} there, {state_delta:{order:{n:5,note:null}}} here",
            "3: output: {n:5} there, {n:5,note:null} here",
            "4: input: {n:5} there, {n:5,note:null} here",
            "stored: state: {order:{n:5}} there, {order:{n:5,note:null}} here",
        ],
    },
    ("t13", "agent with output_schema as a node: its answer does not fit"): {
        FORM: [
            "3: only there: event wf error=ValidationError node=wf@1/ext@1",
            "4: only there: exception ValidationError",
            "before 5: only here: event ext kinds=[text] error=INVALID_OUTPUT node=wf@1/ext@1",
            "before 5: only here: event ext kinds=[text] node=wf@1/ext@1",
            "before 5: only here: request ext contents=user:text model:text user:text schema=true",
            "before 5: only here: event ext kinds=[text] error=INVALID_OUTPUT node=wf@1/ext@1",
            "before 5: only here: event ext kinds=[text] node=wf@1/ext@1",
            "before 5: only here: request ext contents=user:text model:text user:text model:text user:text schema=true",
            "before 5: only here: event ext kinds=[text] error=INVALID_OUTPUT node=wf@1/ext@1",
            "before 5: only here: event ext error=ValueError node=wf@1/ext@1",
            "before 5: only here: exception ValueError",
        ],
    },
    ("t13", "a tool as a node; a dict is its arguments"): {
        TOOLS: [
            "before 4: only here: event wf kinds=[call] calls=[[add,{a:2,b:3}]] node=wf@1/add@1",
            "before 5: only here: event wf kinds=[response] responses=[[add,{result:5}]] node=wf@1/add@1",
        ],
    },
    ("t13", "task mode agent as a node: asks the user, then finish_task"): {
        QUESTION: [
            "before 6: only here: event wf kinds=[call] node=wf@1/taker@1 asks=true",
            "before 7: only here: event taker kinds=[text] node=wf@1/taker@1",
            (
                "stored: log: null there, user:text wf:- taker:text wf:call user:response taker:text taker:call "
                "taker:response taker:- wf:- here"
            ),
        ],
        FINISHED: [
            (
                "9: responses: [[finish_task,{result:Task completed.}]] there, "
                "[[finish_task,{result:{n:2,note:null}}]] here"
            ),
            "9: output: {n:2} there, null here",
            "9: actions: null there, {skip_summarization:true} here",
            "before 10: only here: event taker node=wf@1/taker@1 output={n:2,note:null}",
        ],
        NULLS: [
            "10: input: {n:2} there, {n:2,note:null} here",
        ],
    },
    ("t13", "chat mode agent behind START"): {
        CHAT: [
            "1: only there: turn 1",
            "2: only there: request talker contents=user:text",
            "3: only there: event talker kinds=[text] node=wf@1/talker@1",
            "4: only there: turn 2",
            "5: only there: request talker contents=user:text model:text user:text",
            "6: only there: event talker kinds=[text] node=wf@1/talker@1",
            "before 7: only here: exception ValueError",
        ],
    },
}
