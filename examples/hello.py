"""
The smallest whole program: an agent, a session in a file, one message.

Run it twice. The second run finds the session of the first and goes on with it: the revision is 4.
"""

from __future__ import annotations

import trio

from minirun import LlmAgent, Runner, SqliteSessionService
from minirun.testing import ScriptedLlm

agent = LlmAgent(
    name="greeter",
    model=ScriptedLlm(["Hello Ada!"]),  # says what it is told to say; no network
    instruction="Greet {user:name}.",
    output_key="last_greeting",
)


async def main() -> None:
    """Say hi, and look at what is stored."""
    async with (
        SqliteSessionService("chat.db") as sessions,
        Runner(agent=agent, app_name="demo", session_service=sessions) as runner,
    ):
        if await sessions.get_session(app_name="demo", user_id="u1", session_id="s1") is None:
            state = {"user:name": "Ada"}
            await sessions.create_session(app_name="demo", user_id="u1", session_id="s1", state=state)
        async with runner.run_async(user_id="u1", session_id="s1", new_message="hi") as run:
            async for event in run:
                print(event.author, event.text)
        session = await sessions.get_session(app_name="demo", user_id="u1", session_id="s1")
        assert session is not None
        print(session.state["last_greeting"], session.revision)


if __name__ == "__main__":
    trio.run(main)
