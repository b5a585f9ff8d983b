"""A live conversation as a table: every input has its place in every state, and an answer is stored once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirun.flows._live import TABLE, Do, Input, State, step

CELLS = [(state, what) for state in State for what in Input]
ENDS = {Input.OVER, Input.INTERRUPTED, Input.LOST, Input.CALLS}
OF_CALLS = {Input.RESULTS, Input.DROPPED}
inputs = st.sampled_from(list(Input))


def playable() -> Iterator[tuple[State, Input, State, tuple[Do, ...]]]:
    """All cells in which somebody may still say something."""
    for state, what in CELLS:
        if state is not State.CLOSING:
            yield state, what, *step(state, what)


@pytest.mark.parametrize(("state", "what"), CELLS, ids=[f"{state.name} {what.name}" for state, what in CELLS])
def test_every_input_has_its_place_in_every_state(state: State, what: Input) -> None:
    """No cell is missing; each names a state and things to do, none of them twice, and asks for nothing else."""
    following, doings = step(state, what)
    assert following in State
    assert set(doings) <= set(Do)
    assert len(set(doings)) == len(doings)
    assert set(TABLE[state]) == set(Input)


@given(st.lists(inputs, max_size=20))
def test_what_is_closed_stays_closed(whats: list[Input]) -> None:
    """When nobody says anything any more, nothing that still comes changes the state, and nothing is done."""
    assert [step(State.CLOSING, what) for what in whats] == [(State.CLOSING, ())] * len(whats)


def test_only_a_pause_is_closed_at_once() -> None:
    """The program's wish to end is met where nobody has the word; elsewhere what goes on comes to its end first."""
    met = {state for state in State if step(state, Input.CLOSE)[0] is State.CLOSING}
    assert met == {State.LISTENING, State.CLOSING}
    for state in set(State) - met:
        assert step(state, Input.CLOSE) == (state, ())


def test_nothing_but_the_program_closes() -> None:
    """No state but CLOSING is left for it by anything else than CLOSE."""
    assert {what for _, what, following, _ in playable() if following is State.CLOSING} == {Input.CLOSE}


def test_from_every_state_the_conversation_can_come_to_its_end() -> None:
    """Whatever has happened, some inputs lead to LISTENING, where it can be closed; and all states can be reached."""
    reached = {State.LISTENING: {State.LISTENING}}
    for start in set(State) - {State.CLOSING}:
        found = {start}
        while True:
            more = {step(state, what)[0] for state, what in itertools.product(found, Input)} | found
            if more == found:
                break
            found = more
        reached[start] = found
    assert all(found == set(State) for found in reached.values())


def test_what_the_user_has_said_is_stored_before_what_comes_of_it() -> None:
    """Where an answer is stored or calls are made, what was heard of the user is stored first."""
    for state, what, _, doings in playable():
        if set(doings) & {Do.KEEP, Do.CUT, Do.CALL, Do.TURN}:
            assert doings[0] is Do.KEEP_HEARD, (state, what)


def test_calls_are_made_in_every_state_and_by_nothing_else() -> None:
    """Calls are stored and made whenever the model makes them, and are waited for then."""
    for state, what, following, doings in playable():
        assert (Do.CALL in doings) is (what is Input.CALLS), (state, what)
        assert (what is not Input.CALLS) or following is State.CALLING, (state, what)


def test_an_answer_is_kept_by_its_end_and_cut_by_everything_else() -> None:
    """The end of the turn, and calls, keep what was said before; an interruption and a lost connection cut it off."""
    for state, what, _, doings in playable():
        assert Do.KEEP not in doings or what in (Input.OVER, Input.CALLS), (state, what)
        assert Do.CUT not in doings or what in (Input.INTERRUPTED, Input.LOST), (state, what)


def test_a_turn_is_counted_where_the_user_gets_the_word_again() -> None:
    """TURN is done exactly where the model gives the word back: neither twice for one answer, nor for a drop."""
    for state, what, following, doings in playable():
        waits = State.THINKING if state is State.ASKED else State.LISTENING
        gives_back = following is waits and state in (State.THINKING, State.SPEAKING, State.ASKED)
        assert (Do.TURN in doings) is (gives_back and what in (Input.INTERRUPTED, Input.OVER)), (state, what)


class Conversation(NamedTuple):
    """What the driver has before it: KEEP and CUT without an answer do nothing, and RESULTS come of calls alone."""

    state: State = State.LISTENING
    has_answer: bool = False
    has_calls: bool = False

    def possible(self) -> Iterator[Input]:
        """What may come now."""
        for what in Input:
            if what not in OF_CALLS or self.has_calls:
                yield what

    def after(self, what: Input) -> tuple[Conversation, int]:
        """What follows when *what* has come, and how often an answer was stored."""
        state, doings = step(self.state, what)
        has_answer, stored = self.has_answer, 0
        for do in doings:
            if do in (Do.KEEP, Do.CUT) and has_answer:
                has_answer, stored = False, stored + 1
        if what is Input.PIECE and self.state is not State.CLOSING:  # of the answer that is open, or of a new one
            has_answer = True
        calls = (self.has_calls and what not in OF_CALLS) or Do.CALL in doings
        return Conversation(state, has_answer, calls), stored


def reachable() -> list[Conversation]:
    """All that a conversation can come to, whatever comes in which order."""
    found = [Conversation()]
    for conversation in found:
        for what in conversation.possible():
            following, _ = conversation.after(what)
            if following not in found:
                found.append(following)
    return found


def test_an_answer_that_has_begun_is_stored_exactly_once_on_every_path() -> None:
    """
    It is stored when it is over, cut off or goes on with calls, so no answer goes on as part of the next one. What is
    open when all is closed is stored by the driver as the last thing.
    """
    assert len(reachable()) > len(State)
    for conversation in reachable():
        for what in conversation.possible():
            following, stored = conversation.after(what)
            if conversation.has_answer:
                assert stored + following.has_answer == 1, (conversation, what)
            if conversation.state is not State.CLOSING and what in ENDS:
                assert not following.has_answer, (conversation, what)


def test_the_state_says_whether_the_model_waits_for_results() -> None:
    """CALLING is the state exactly as long as calls are open, whatever else comes meanwhile."""
    for conversation in reachable():
        assert conversation.has_calls is (conversation.state is State.CALLING), conversation
