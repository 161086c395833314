"""The logs of triggers and runs, as the command line reads them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

import httpx

from headrace.client.http.responses import CONNECT_SECONDS, bearer, options, raise_for_problem, translate_transport_errors
from headrace.logs.query import END, JOB, LogQuery
from headrace.wire.calls.admin import GET_RUN_LOG, GET_TRIGGER_LOG


class LogClient:
    """Reads logs from the api at `url`; each method yields lines, without their ends."""

    def __init__(self, url: str, *, token: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._headers = {} if token is None else bearer(token)

    def trigger(self, called: str, job_id: int | None, query: LogQuery) -> Iterator[str]:
        """Yield the log of a trigger, given its name or id: of one job, else of its current or last job."""
        return self._lines(GET_TRIGGER_LOG.url({"called": called}), {} if job_id is None else {"job": str(job_id)}, query)

    def run(self, called: str, query: LogQuery) -> Iterator[str]:
        """Yield the log of a run, given its id or the beginning of it."""
        return self._lines(GET_RUN_LOG.url({"called": called}), {}, query)

    def _lines(self, path: str, params: dict[str, str], query: LogQuery) -> Iterator[str]:
        with httpx.Client(**options(self._url) | {"timeout": httpx.Timeout(CONNECT_SECONDS, read=None)}) as http:
            while True:
                with (
                    translate_transport_errors(self._url),
                    http.stream("GET", path, params=params | query.query(), headers=self._headers) as response,
                ):
                    if not response.is_success:
                        response.read()
                        raise_for_problem(response)
                    before = query
                    if END in response.headers:
                        query = LogQuery(after=int(response.headers[END]))
                    if JOB in response.headers:
                        params = {"job": response.headers[JOB]}  # so that the next page is one of the same log
                    yield from _split(response.iter_bytes())
                if before.follow or before.after == query.after:
                    return


def _split(chunks: Iterable[bytes]) -> Generator[str]:
    """Yield the whole lines of received chunks. Only a newline ends a line of JSON."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
