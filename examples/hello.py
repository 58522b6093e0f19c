"""The smallest workflow. Try: durable dev examples.hello --run hello --input who=world"""

from durable import DurableContext, workflow


async def greet(who: str) -> str:
    return f"Hello, {who}!"


@workflow
async def hello(ctx: DurableContext, who: str = "world") -> str:
    return str(await ctx.step(greet, who))
