"""Start a PostgreSQL server, insert orders into an outbox, run the project, print the rows of its table, and stop everything.

make example-postgres
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas
import psycopg

from headrace.testing.deployment import RunningDeployment, run_deployment

HERE = Path(__file__).resolve().parent
SERVER = HERE.parents[1] / "scripts" / "brokers" / "postgresql.sh"
CUSTOMERS = ("Ada", "Bo", "Cy")
REGIONS = ("eu", "us")
ORDERS = 300


def main() -> int:
    """Run the example and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="headrace-postgres-outbox-") as folder:
        Path(folder).chmod(0o755)  # the server runs as another user
        with postgres(Path(folder) / "postgres") as address:
            print(f"· PostgreSQL runs on {address}.")
            url = f"postgresql://postgres@{address}/postgres"
            insert_orders(url)
            print(f"· {ORDERS} orders went through the outbox: 100 payments, 100 open orders, 100 refunds.")
            os.environ["HEADRACE_CONNECTION_POSTGRESQL"] = url
            with run_deployment(HERE / "project.py", Path(folder) / "home") as deployment:
                print("· Headrace reads them. Spark starts …")
                rows = deployment.wait_until(lambda: rows_of(deployment), timeout=180)
            show(pandas.DataFrame(rows))
    return 0


@contextmanager
def postgres(data: Path) -> Iterator[str]:
    """Run a PostgreSQL server with an empty folder for its data. Its address is the value."""
    environment = os.environ | {"HEADRACE_BROKER_DATA": str(data)}
    subprocess.run([SERVER, "setup"], check=True, env=environment)
    address = subprocess.run([SERVER, "start"], check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout.strip()
    try:
        yield address
    finally:
        subprocess.run([SERVER, "wipe"], check=True, env=environment)


def insert_orders(url: str) -> None:
    """Create outbox, publication and slot, and insert orders. Each row is deleted in the transaction that inserts it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE outbox (id bigserial PRIMARY KEY, customer text, region text, body json)")
        connection.execute("CREATE PUBLICATION shop FOR TABLE outbox")
        connection.execute("SELECT pg_create_logical_replication_slot('shop', 'pgoutput')")
        for number in range(ORDERS):
            customer, kind = CUSTOMERS[number // 3 % len(CUSTOMERS)], number % 3
            order: dict[str, Any] = {"id": f"order-{number}", "status": ("paid", "open", "refunded")[kind], "cents": 100 + number // 3}
            if order["status"] == "refunded":
                order |= {"refund_of": f"order-{number - 2}", "cents": 50}
            with connection.transaction():
                connection.execute(
                    "INSERT INTO outbox (customer, region, body) VALUES (%s, %s, %s)",
                    (customer, REGIONS[number // 3 % len(REGIONS)], json.dumps(order)),
                )
                connection.execute("DELETE FROM outbox")


def rows_of(deployment: RunningDeployment) -> list[dict[str, Any]]:
    """Return the rows of the table once all are there, until then none."""
    folder = deployment.tables / "payments"
    if not list(folder.glob("*.parquet")):
        return []
    rows: list[dict[str, Any]] = pandas.read_parquet(folder).to_dict("records")
    return rows if len(rows) == ORDERS * 2 // 3 else []


def show(rows: pandas.DataFrame) -> None:
    """Print the newest rows and the sums."""
    print(f"\n{len(rows)} rows in the table payments. The last ones:\n")
    print(rows.sort_values("seq").tail(6).to_string(index=False))
    sums = rows.groupby("customer")["cents"].agg(["count", "sum"])
    print("\nBy customer, payments less refunds in cents:\n")
    print(sums.to_string())


if __name__ == "__main__":
    sys.exit(main())
