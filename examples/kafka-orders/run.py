"""Start a Kafka server, send orders, run the project, print the rows of its table, and stop everything.

make example-kafka
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
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.deployment import RunningDeployment, run_deployment

HERE = Path(__file__).resolve().parent
SERVER = HERE.parents[1] / "scripts" / "brokers" / "kafka.sh"
CUSTOMERS = ("Ada", "Bo", "Cy")
ORDERS = 300


def main() -> int:
    """Run the example and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="headrace-kafka-orders-") as folder, kafka(Path(folder) / "kafka") as address:
        print(f"· Kafka runs on {address}.")
        send_orders(address)
        print(f"· {ORDERS} orders are in the topic: 100 payments, 100 open orders, 100 refunds.")
        os.environ["HEADRACE_CONNECTION_KAFKA"] = f"kafka://{address}"
        with run_deployment(HERE / "project.py", Path(folder) / "home") as deployment:
            print("· Headrace reads them. Spark starts …")
            rows = deployment.wait_until(lambda: rows_of(deployment), timeout=180)
        show(pandas.DataFrame(rows))
    return 0


@contextmanager
def kafka(data: Path) -> Iterator[str]:
    """Run a Kafka server with an empty folder for its data. Its address is the value."""
    environment = os.environ | {"HEADRACE_BROKER_DATA": str(data)}
    subprocess.run([SERVER, "setup"], check=True, env=environment)
    address = subprocess.run([SERVER, "start"], check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout.strip()
    try:
        yield address
    finally:
        subprocess.run([SERVER, "wipe"], check=True, env=environment)


def send_orders(address: str) -> None:
    """Create the topic and send payments, open orders and refunds."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 3})
    for created in admin.create_topics([NewTopic("orders", num_partitions=4)]).values():
        created.result(30)
    # One request in flight: on a new topic, a broker may refuse the first request and take the second.
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "max.in.flight": 1, "log_level": 3})
    for number in range(ORDERS):
        customer, kind = CUSTOMERS[number // 3 % len(CUSTOMERS)], number % 3
        order: dict[str, Any] = {"id": f"order-{number}", "status": ("paid", "open", "refunded")[kind], "cents": 100 + number // 3}
        if order["status"] == "refunded":
            order |= {"refund_of": f"order-{number - 2}", "cents": 50}
        producer.produce("orders", json.dumps(order).encode(), key=customer.encode(), headers={"shop": "web"})
    if producer.flush(30):
        raise TimeoutError("Kafka did not confirm the orders within 30 s.")


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
