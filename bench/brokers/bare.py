"""Read a source and acknowledge in batches, without Headrace: python -m bench.brokers.bare BROKER ADDRESS NAME"""

from __future__ import annotations

import sys

from bench.brokers.broker import broker_class

if __name__ == "__main__":
    broker_class(sys.argv[1]).read(*sys.argv[2:])
