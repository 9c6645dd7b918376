"""Opens the extractors that are configured."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mnemon_server.assembly.embedder import Report
from mnemon_server.config.settings import Settings
from mnemon_server.domain.bridge.extraction import ExtractMode
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.services.bridge.conversations import ContextLimits
from mnemon_server.services.bridge.extracting import ExtractionSettings, Extractors
from mnemon_server.services.bridge.pending import BatchLimits
from mnemon_server.services.extraction.desk import ExtractorDesk, ExtractorLimits
from mnemon_server.services.extraction.extractor import Extractor


@asynccontextmanager
async def open_extractors(settings: Settings, report: Report) -> AsyncIterator[Extractors]:
    """The extractors that all vaults share.

    Raises:
        ConfigurationError: an address, the key file or the prompt file is invalid, or the model is not named.
    """
    limits = ExtractorLimits(
        calls_max=settings.extract_calls_max,
        calls_per_hour=settings.extract_calls_per_hour,
        tokens_per_hour=settings.extract_tokens_per_hour,
    )
    desks: dict[ExtractMode, ExtractorDesk] = {}
    try:
        if settings.extract_endpoint:
            model = await asyncio.to_thread(_open_model, settings, report)
            desks[ExtractMode.MODEL] = ExtractorDesk(model, limits)
        if settings.extract_service:
            desks[ExtractMode.SERVICE] = ExtractorDesk(_open_service(settings, report), limits)
        yield Extractors(desks, _settings_of(settings))
    finally:
        for desk in desks.values():
            await desk.aclose()


def _settings_of(settings: Settings) -> ExtractionSettings:
    return ExtractionSettings(
        batch=BatchLimits(
            quiet_s=settings.extract_quiet_s,
            messages_max=settings.extract_messages_max,
            tokens_max=settings.extract_tokens_max,
        ),
        context=ContextLimits(earlier_max=settings.extract_earlier_max, known_max=settings.extract_known_max),
        attempts_max=settings.extract_attempts_max,
        retry_first_s=settings.extract_retry_s,
    )


def _open_model(settings: Settings, report: Report) -> Extractor:
    # Imported here, because a server without an endpoint need not wait a tenth of a second for httpx.
    from mnemon_server.endpoints.client import EndpointSettings, base_url
    from mnemon_server.services.extraction.chat_extractor import ANSWER_BYTES_MAX, NAME, ChatExtractor, read_prompt

    if not settings.extract_model:
        raise ConfigurationError("extract_endpoint needs extract_model, the name of the model that it runs")
    url = base_url(settings.extract_endpoint)
    endpoint = EndpointSettings(
        name=NAME,
        url=settings.extract_endpoint,
        key_file=settings.extract_key_file,
        timeout_s=settings.extract_timeout_s,
        answer_bytes_max=ANSWER_BYTES_MAX,
    )
    extractor = ChatExtractor(
        settings.extract_model,
        endpoint,
        prompt=read_prompt(settings.extract_prompt_file),
        answer_format=settings.extract_answer_format,
        threads=settings.extract_calls_max,
    )
    report(f"conversations leave this server: where the bridge's policy has the mode model, they are sent to {url}")
    return extractor


def _open_service(settings: Settings, report: Report) -> Extractor:
    from mnemon_server.transport.extractor_service import GrpcExtractor

    address = settings.extract_service
    extractor = GrpcExtractor(
        address,
        tls=settings.extract_service_tls,
        key_file=settings.extract_service_key_file,
        timeout_s=settings.extract_timeout_s,
    )
    report(
        f"conversations leave this server: where the bridge's policy has the mode service, they are sent to {address}"
    )
    return extractor
