"""The end of a run: how large it has become, its last chunks, and what is kept of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from dodona.agent.histories import History
from dodona.agent.host import Host
from dodona.agent.insights import Insight, insight_of
from dodona.agent.question import context_id
from dodona.agent.result import Result
from dodona.core import chunks
from dodona.core.chunks import Chunk
from dodona.core.contexts import OracleContext
from dodona.core.conversation import Ended, Ending, NewMessage
from dodona.core.messages import UserText
from dodona.core.model import Finish
from dodona.core.notices import Deferral, Moment, NewNotice


class Sizes(NamedTuple):
    said: int  # tokens of this run, as later ones will read it
    context: int  # what the context holds then


async def end_run(host: Host, result: Result) -> tuple[Ended, History]:
    """Write the end, then show it; what a question that follows will begin with."""
    await _keep_late(host)
    sizes = _sizes(host, result)
    last = [host.feed.number(body) for body in _bodies(host, result, sizes)]
    exchange = result.exchange
    insight = insight_of(host.brief.question.content, exchange)
    fresh = _new_to(host.brief.context, insight)
    cut = host.feed.after(host.turn_began) if exchange.is_partial else []
    model = host.used[1]
    _count(host)
    ended = await host.journal.end(
        Ending(
            status=result.status,
            messages=(
                NewMessage(
                    role="assistant",
                    content=exchange.content,
                    token_count=sizes.said,
                    metadata=exchange.metadata(
                        model=model or None,
                        tokens_used=host.tokens_used,
                        last=kept((*cut, *last)),
                    ),
                    raw=exchange.raw,
                    key_insight=insight.key_insight,
                    mentioned_symbols=insight.symbols,
                    mentioned_files=insight.files,
                ),
            ),
            error=result.failure,
            model=host.chosen.model.name if model else "",
            context_tokens=sizes.context,
            decisions=fresh.decisions,
            mentioned_symbols=fresh.symbols,
            mentioned_files=fresh.files,
        )
    )
    host.feed.show(last)
    question = host.brief.question
    said = (UserText(question.content), *exchange.said())
    return ended, host.history.followed_by(said, question.token_count + sizes.said, exchange.traces)


def _count(host: Host) -> None:
    """Let the session know how much was said in it."""
    if (key := host.brief.session_key) is not None:
        said = host.output_tokens
        used = {"input_tokens": max(0, host.tokens_used - said), "output_tokens": said}
        sessions = host.means.storage.sessions
        host.journal.ride(sessions.counted(host.user_id, key, messages=2, **used))


async def _keep_late(host: Host) -> None:
    """What rules said when the run was over is told when the next one begins."""
    for number, event in enumerate(host.hearing.late):
        await host.means.storage.notices.put(
            NewNotice(
                user_id=host.user_id,
                project_id=host.project_id,
                event=event,
                due=Deferral(Moment.SESSION),
                run_id=host.claim.run_id,
                key=f"run-{host.claim.run_id}/late-{number}",
            )
        )


def _new_to(context: OracleContext, insight: Insight) -> Insight:
    """What of it the context does not know yet: most often nothing, which costs nothing."""
    symbols = set((context.mentioned_symbols or "").split(", "))
    files = set((context.mentioned_files or "").split(", "))
    return Insight(
        symbols=tuple(name for name in insight.symbols if name not in symbols),
        files=tuple(path for path in insight.files if path not in files),
        decisions=tuple(each for each in insight.decisions if each not in context.key_decisions),
    )


def kept(shown: tuple[Chunk, ...]) -> list[list[Any]]:
    return [[chunk.seq, chunk.body] for chunk in shown]


def _sizes(host: Host, result: Result) -> Sizes:
    said = host.count(result.exchange.content) + host.turn_tokens
    before = host.history.tokens + host.brief.question.token_count
    return Sizes(said, min(host.brief.context.token_budget, before + said))


def _bodies(host: Host, result: Result, sizes: Sizes) -> list[dict[str, Any]]:
    if result.failure is not None:
        return [{"type": "error", "error": dict(result.failure)}]
    return [
        chunks.context_update(
            tokens=host.transcript.tokens + host.count(result.exchange.content),
            limit=host.chosen.context_size,
        ),
        chunks.done(
            tokens_used=host.tokens_used,
            model_used=host.used[1] or host.chosen.model.name,
            context_id=context_id(host.claim.run_id),
            context_tokens_remaining=host.brief.context.token_budget - sizes.context,
            finish=_finish(host, result),
        ),
    ]


def _finish(host: Host, result: Result) -> chunks.Ended:
    if result.exchange.is_partial or host.finish == Finish.LENGTH.value:
        return "length"
    return "refusal" if host.finish == Finish.REFUSAL.value else "stop"
