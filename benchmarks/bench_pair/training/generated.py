"""Generated JSON, logs and tables, and random text: the kinds that no licence covers."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any

GIVEN_NAMES = (
    "Alice",
    "Bob",
    "Carol",
    "David",
    "Emma",
    "Frank",
    "Grace",
    "Henry",
    "Irene",
    "Jack",
    "Karen",
    "Liam",
    "Maria",
    "Noah",
    "Olivia",
    "Peter",
)
FAMILY_NAMES = (
    "Smith",
    "Jones",
    "Brown",
    "Taylor",
    "Wilson",
    "Evans",
    "Thomas",
    "Johnson",
    "Roberts",
    "Walker",
    "Wright",
    "Green",
    "Hall",
    "Wood",
)
CITIES = (
    "London",
    "Paris",
    "Berlin",
    "Madrid",
    "Rome",
    "Vienna",
    "Dublin",
    "Oslo",
    "Lisbon",
    "Prague",
    "Athens",
    "Boston",
)
PRODUCTS = (
    "keyboard",
    "monitor",
    "laptop",
    "charger",
    "cable",
    "headset",
    "mouse",
    "webcam",
    "printer",
    "router",
)
ORDER_STATES = ("pending", "shipped", "delivered", "cancelled", "returned")
EVENT_TYPES = ("login", "logout", "purchase", "page_view", "error")
DEVICES = ("mobile", "desktop", "tablet")
URL_PATHS = (
    "/",
    "/index.html",
    "/api/v1/users",
    "/api/v1/orders",
    "/api/v1/items",
    "/login",
    "/logout",
    "/static/app.js",
    "/health",
)
SERVICES = ("main", "worker-1", "worker-2", "scheduler", "database")


def person_name(rng: random.Random) -> str:
    return f"{rng.choice(GIVEN_NAMES)} {rng.choice(FAMILY_NAMES)}"


def calendar_date(rng: random.Random) -> str:
    return f"2024-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def clock(seconds: int) -> str:
    return f"{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def network_address(rng: random.Random) -> str:
    return ".".join(str(rng.randint(1, 254)) for _ in range(4))


def customer(rng: random.Random, number: int) -> dict[str, Any]:
    name = person_name(rng)
    return {
        "id": number,
        "name": name,
        "email": name.lower().replace(" ", ".") + "@example.com",
        "age": rng.randint(18, 80),
        "active": rng.random() < 0.7,
        "address": {
            "street": f"{rng.randint(1, 200)} {rng.choice(FAMILY_NAMES)} Street",
            "city": rng.choice(CITIES),
            "postcode": str(rng.randint(10000, 99999)),
        },
        "created": calendar_date(rng),
    }


def order(rng: random.Random, number: int) -> dict[str, Any]:
    items: list[dict[str, Any]] = [
        {
            "product": rng.choice(PRODUCTS),
            "quantity": rng.randint(1, 5),
            "price": round(rng.uniform(5, 400), 2),
        }
        for _ in range(rng.randint(1, 3))
    ]
    total = sum(item["price"] * item["quantity"] for item in items)
    return {
        "order_id": number,
        "customer": person_name(rng),
        "status": rng.choice(ORDER_STATES),
        "items": items,
        "total": round(total, 2),
        "date": calendar_date(rng),
    }


def event(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "event_id": number,
        "type": rng.choice(EVENT_TYPES),
        "user_id": rng.randint(1, 999),
        "timestamp": f"{calendar_date(rng)}T{clock(rng.randrange(86400))}Z",
        "source": {
            "address": network_address(rng),
            "city": rng.choice(CITIES),
            "device": rng.choice(DEVICES),
        },
        "success": rng.random() < 0.8,
    }


def json_document(rng: random.Random) -> str:
    """A list of like records: indented, indented inside an envelope, or one record per line."""
    record = rng.choice((customer, order, event))
    first = rng.randint(1, 900)
    records = [record(rng, first + offset) for offset in range(rng.randint(6, 12))]
    layout = rng.choice(("envelope", "list", "lines"))
    if layout == "envelope":
        return json.dumps({"count": len(records), "results": records}, indent=2)
    if layout == "list":
        return json.dumps(records, indent=2)
    return "\n".join(json.dumps(one) for one in records)


def access_log(rng: random.Random, lines: int) -> list[str]:
    return [
        f"{network_address(rng)} - - [{calendar_date(rng)}T{clock(rng.randrange(86400))}] "
        f'"{rng.choice(("GET", "GET", "GET", "POST"))} {rng.choice(URL_PATHS)} HTTP/1.1" '
        f"{rng.choice((200, 200, 200, 304, 404, 500))} {rng.randint(100, 9999)}"
        for _ in range(lines)
    ]


def service_log(rng: random.Random, lines: int) -> list[str]:
    day, seconds = calendar_date(rng), rng.randrange(50_000)
    found = []
    for _ in range(lines):
        seconds += rng.randint(0, 9)
        message = rng.choice(
            (
                f"request completed in {rng.randint(1, 900)} ms",
                "connection established to database",
                "connection closed by peer",
                f"retrying operation, attempt {rng.randint(1, 5)}",
                f"cache miss for key user:{rng.randint(1, 999)}",
                "scheduled job started",
                "scheduled job finished successfully",
                f"queue length is {rng.randint(0, 99)}",
            )
        )
        level = rng.choice(("INFO", "INFO", "INFO", "WARNING", "ERROR"))
        found.append(f"{day} {clock(seconds)} {level} [{rng.choice(SERVICES)}] {message}")
    return found


def table(rng: random.Random, lines: int) -> list[str]:
    rows = [
        f"{row},{person_name(rng)},{rng.choice(CITIES)},{rng.choice(PRODUCTS)},"
        f"{rng.randint(1, 9)},{rng.uniform(5, 400):.2f},{calendar_date(rng)}"
        for row in range(1, lines + 1)
    ]
    return ["id,name,city,product,quantity,price,date", *rows]


def log_document(rng: random.Random) -> str:
    make = rng.choice((access_log, service_log, table))
    return "\n".join(make(rng, rng.randint(25, 50)))


def random_document(rng: random.Random) -> str:
    """Lines of random bytes, all in hexadecimal or all in base 64."""
    lines = rng.randint(12, 24)
    if rng.random() < 0.5:
        return "\n".join(rng.randbytes(32).hex() for _ in range(lines))
    return "\n".join(base64.b64encode(rng.randbytes(48)).decode() for _ in range(lines))


GENERATORS: dict[str, Callable[[random.Random], str]] = {
    "json": json_document,
    "log": log_document,
    "random": random_document,
}
