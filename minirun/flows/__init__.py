"""What a turn with a model is, without doing it: pure functions and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import names_of

if TYPE_CHECKING:
    from ._filters import keep_last as keep_last
    from ._filters import remove_all_tools as remove_all_tools
else:
    __getattr__, __dir__, __all__ = names_of(globals(), {"._filters": "keep_last remove_all_tools"})

# The rooms:
#
#   _turn           one turn as a table of states
#   _transcript     a session's events as the contents of a request
#   _filters        functions that choose what an agent is shown
#   _prompts        the words that the framework itself says to models
#   _instructions   instructions with holes, filled in
#   _questions      the names of the calls that stand for questions
#   _compaction     what a summary may cover, and when one is due
#   _budgets        what an invocation has used of its limits
#   _shared_budget  a budget of several runs
#   _record         what an invocation has stored, and how far that is replayed
#   _recorded_step  steps in the log
#   _event_answer   what an event becomes by the answer of a hook
#
#   _signature      a function's parameters as a schema, and a model's arguments for them
#   _parameters     the parameters of a callable, with their annotations and defaults
#   _types          what a type is to a model, and those without parts
#   _schema         all other types: annotations as schemas and readers; loaded when one shows up
#   _docstring      what a docstring says about parameters
#
#   _output         the form that an agent's answers are to have
#   _json_schema    a JSON schema, compiled
#   _json_nodes     what it is compiled into, and how values are checked
