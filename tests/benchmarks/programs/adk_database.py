# mypy: ignore-errors
"""
The side of google-adk where writers share a Postgres database: its DatabaseSessionService on asyncpg.

    python adk_database.py WRITERS TIMES URL

It says `ready`, begins when it is told to, and prints what an event took; see database_crowd.py.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import DatabaseSessionService
from google.genai.types import Content, Part

ANSWER = "It is sunny in Paris, and 21 degrees."


async def main(writers, times, url):
    service = DatabaseSessionService(db_url=url)

    async def write(session):
        for _ in range(times):
            actions = EventActions(state_delta={"last": ANSWER})
            content = Content(role="model", parts=[Part(text=ANSWER)])
            await service.append_event(session, Event(author="agent", content=content, actions=actions))

    sessions = [await service.create_session(app_name="app", user_id="u") for _ in range(writers)]
    print("ready", flush=True)
    sys.stdin.readline()
    begun, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(write(session) for session in sessions))
    events = writers * times
    took = {"us": (time.perf_counter() - begun) / events * 1e6, "cpu_us": (time.process_time() - cpu) / events * 1e6}
    print(json.dumps(took))
    await service.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
