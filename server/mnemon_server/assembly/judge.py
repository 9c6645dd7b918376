"""Opens the judge of conflicts that is configured."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mnemon_server.assembly.embedder import Report
from mnemon_server.config.settings import Settings
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.services.conflicts.judging import JudgeDesk, JudgeLimits


@asynccontextmanager
async def open_judge(settings: Settings, report: Report) -> AsyncIterator[JudgeDesk | None]:
    """The judge that all vaults share; None if none is configured.

    Raises:
        ConfigurationError: the URL or the key file is invalid, or the model is not named.
    """
    if not settings.judge_endpoint:
        yield None
        return
    desk = await asyncio.to_thread(_open, settings, report)
    try:
        yield desk
    finally:
        await desk.aclose()


def _open(settings: Settings, report: Report) -> JudgeDesk:
    # Imported here, because a server without an endpoint need not wait a tenth of a second for httpx.
    from mnemon_server.endpoints.client import EndpointSettings, base_url
    from mnemon_server.services.conflicts.chat_judge import ANSWER_BYTES_MAX, NAME, ChatJudge

    if not settings.judge_model:
        raise ConfigurationError("judge_endpoint needs judge_model, the name of the model that it runs")
    url = base_url(settings.judge_endpoint)
    endpoint = EndpointSettings(
        name=NAME,
        url=settings.judge_endpoint,
        key_file=settings.judge_key_file,
        timeout_s=settings.judge_timeout_s,
        answer_bytes_max=ANSWER_BYTES_MAX,
    )
    limits = JudgeLimits(
        timeout_s=settings.judge_timeout_s,
        pairs_max=settings.judge_pairs_max,
        calls_per_minute=settings.judge_calls_per_minute,
    )
    judge = ChatJudge(settings.judge_model, endpoint)
    report(f"statements leave this server: they are sent to {url} to be judged, where a rule evaluates the relation")
    return JudgeDesk(judge, limits)
