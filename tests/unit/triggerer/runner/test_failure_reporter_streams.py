"""The failure of a stream is reported once for all its watches, with a bounded number of watches in each call."""

from __future__ import annotations

from typing import cast

from headrace.errors import ApiRefused
from headrace.ports.triggerer_api import TriggererApi
from headrace.triggerer.context import TriggerContext
from headrace.triggerer.runner.failure_reporter import FailureReporter
from headrace.triggerer.runner.leases import Leases
from headrace.wire.control.triggers import MAX_FAILED, StreamFailure, StreamFailureRecorded
from support.processes.api_twin import ApiTwin


class Api(ApiTwin):
    def __init__(self, trouble: Exception | None = None) -> None:
        self.told: list[StreamFailure] = []
        self.trouble = trouble

    async def stream_failure(self, failed: StreamFailure) -> StreamFailureRecorded:
        if self.trouble is not None:
            raise self.trouble
        self.told.append(failed)
        return StreamFailureRecorded(retry_in=len(self.told))


def failures(api: Api, watches: int) -> tuple[FailureReporter, list[TriggerContext]]:
    leases = Leases()
    leases.update(dict.fromkeys(range(watches), 3))
    return FailureReporter(cast(TriggererApi, api), leases), [TriggerContext(one, f"w{one}", "") for one in range(watches)]


async def test_each_failure_report_names_a_bounded_number_of_watches() -> None:
    api = Api()
    told, watches = failures(api, 2 * MAX_FAILED + 1)
    assert await told.stream("s", watches, OSError("away")) == 3
    assert [len(one.epochs) for one in api.told] == [MAX_FAILED, MAX_FAILED, 1]
    assert len({one.report for one in api.told}) == 1
    assert set(api.told[0].epochs.values()) == {3}
    assert (api.told[0].type, api.told[0].message) == ("OSError", "away")
    assert await told.stream("s", watches[:1], OSError("away")) > 0
    assert api.told[-1].report != api.told[0].report


async def test_a_failure_that_the_api_refuses_delays_the_stream() -> None:
    told, watches = failures(Api(ApiRefused("no")), 1)
    assert await told.stream("s", watches, OSError("away")) > 0
