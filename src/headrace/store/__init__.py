"""The only home of SQLAlchemy: tables, migrations, one module per aggregate."""

from headrace.store.control.jobs import Liveness
from headrace.store.store import Store, open_store

__all__ = ["Liveness", "Store", "open_store"]
