"""
An order that is charged, shipped after a human's approval, and confirmed by mail; each once, whatever dies meanwhile.

    minirun run examples/order_agent.py --db orders.db "3 pens"
    minirun invocations pending --db orders.db
    minirun answer examples/order_agent.py --db orders.db CALL_ID yes
    minirun invocations resume examples/order_agent.py --db orders.db

Between two lines nothing runs. Kill a process wherever you like, and let the last line go on with what was interrupted:
it reads from the log what was done, and a step whose result is stored is not taken again. What the world sees (the
charge, the parcel, the mail) carries the key of its step, so that a shop can tell a repetition, if a process died
between the effect and its record.
"""

from __future__ import annotations

from pathlib import Path

from minirun import App, BaseAgent, Event, InvocationContext

WORLD = Path("world.log")


def happens(what: str, key: str) -> str:
    """Stands for a payment provider, a warehouse and a mail server: a line for what happens, once per key."""
    lines = WORLD.read_text("utf-8").splitlines() if WORLD.exists() else []
    if not any(line.endswith(key) for line in lines):
        with WORLD.open("a", encoding="utf-8") as world:
            world.write(f"{what} {key}\n")
    return what


class Order(BaseAgent):
    """Handles one order, from the charge to the mail."""

    async def _run_async_impl(self, ctx: InvocationContext) -> None:
        assert ctx.user_content is not None
        order = ctx.user_content.text

        def act(what: str) -> str:
            return happens(f"{what}: {order}", ctx.idempotency_key)

        await ctx.step("charge", act, "charged")
        await ctx.emit(Event(message=f"{order}: charged, waiting for approval", state={"status": "charged"}))
        approved = await ctx.request_input(f"Ship {order}?", response_schema=bool)
        if not approved:
            await ctx.step("refund", act, "refunded")
            await ctx.emit(Event(message=f"{order}: refunded", state={"status": "refunded"}))
            return
        await ctx.step("ship", act, "shipped")
        await ctx.step("mail", act, "mailed")
        await ctx.emit(Event(message=f"{order}: shipped, and a receipt is on its way", state={"status": "done"}))


app = App("orders", Order(name="order"))
