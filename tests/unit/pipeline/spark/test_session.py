from __future__ import annotations

import os

import pytest

from headrace.pipeline.spark.session import cores_of


@pytest.mark.parametrize(("master", "cores"), [("local", 1), ("local[3]", 3), ("local[4, 2]", 4), ("spark://host:7077", 2), ("yarn", 2)])
def test_cores_of_returns_the_cores_of_a_master(master: str, cores: int) -> None:
    assert cores_of(master) == cores


def test_a_star_means_all_cores_of_this_host() -> None:
    assert cores_of("local[*]") == os.cpu_count()
