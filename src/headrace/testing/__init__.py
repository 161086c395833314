"""Test projects and upstreams with Headrace's own code.

`__init__.pyi` lists the names. Each is imported when it is first used, so that the contract suite does not load Spark.
"""

from __future__ import annotations

import sys

from headrace.lazy_exports import lazy_exports as _lazy_exports

if (_pytest := sys.modules.get("pytest")) is not None:  # so that failed assertions of the suite show their values
    _pytest.register_assert_rewrite("headrace.testing.contract.suite", "headrace.testing.contract.crashes")

__getattr__, __dir__, __all__ = _lazy_exports(__name__)
