"""Lines of objects fulfil the contract of sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing import Broker, SourceContract
from support.processes import azurite, fake_gcs, versitygw
from support.sources.objects import BucketBroker

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("objects-contract")]


@pytest.mark.xdist_group("s3")
class TestLinesOfObjects(SourceContract):
    def make_broker(self, folder: Path) -> Broker:
        return BucketBroker(versitygw.shared())


@pytest.mark.exhaustive
@pytest.mark.xdist_group("gs")
class TestLinesOfObjectsOfGoogleCloudStorage(SourceContract):
    def make_broker(self, folder: Path) -> Broker:
        return BucketBroker(fake_gcs.shared())


@pytest.mark.xdist_group("az")
class TestLinesOfObjectsOfAzure(SourceContract):
    def make_broker(self, folder: Path) -> Broker:
        return BucketBroker(azurite.shared())
