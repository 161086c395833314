"""The only package that imports SQLAlchemy: tables, migrations, and one module for each aggregate."""

from headrace.store.control.jobs import Liveness
from headrace.store.store import Store, open_store

__all__ = ["Liveness", "Store", "open_store"]
