"""
An agent in a script or a notebook, without `async`: `runner.run` is an ordinary iterator. Cells begin at `# %%`.

The agent lives in a thread of its own and waits whenever this code holds an event. Leaving the `with` block, closing
the iterator or Ctrl-C ends the run and joins the thread.
"""

# %% an agent, and a runner whose sessions live as long as this script
from minirun import InMemoryRunner, LlmAgent
from minirun.testing import ScriptedLlm, call

prices = {"pen": 2, "ink": 5}


def price(item: str) -> int | None:
    """What an item costs; None: nobody knows."""
    return prices.get(item)


model = ScriptedLlm([call("price", item="ink"), "Ink costs 5.", call("price", item="gold"), "I don't know.", "?"])
runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=[price]), auto_create_session=True)

# %% one turn, event by event
for event in runner.run(user_id="u", session_id="s", new_message="What is ink?"):
    print(f"{event.seq}: {event.text or event.get_function_calls() or event.get_function_responses()[0].response}")

# %% the next turn goes on in the same session; only the answer, please
*_, answer = runner.run(user_id="u", session_id="s", new_message="And gold?")
print(f"{answer.seq}: {answer.text}")

# %% looking at the first event only: leaving the block ends the run, and nobody has asked the model again
with runner.run(user_id="u", session_id="s", new_message="Tell me everything.") as events:
    print(next(events).text)
