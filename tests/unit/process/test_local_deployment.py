"""A home has at most one running standalone (first-use 3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ResourceError
from headrace.process.local_deployment import LocalDeployment
from headrace.run_files import STANDALONE, RunFile
from headrace.settings import Settings


async def test_a_second_standalone_of_a_home_is_rejected(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, port=0)
    with RunFile(tmp_path / STANDALONE) as file:
        file.write({"pid": 4711, "url": "http://127.0.0.1:8700"})
        with pytest.raises(ResourceError, match=r"already \(process 4711, http://127.0.0.1:8700\)"):
            async with LocalDeployment(settings, notice=pytest.fail):
                pass
    async with LocalDeployment(settings, notice=pytest.fail):  # that one has ended
        pass
