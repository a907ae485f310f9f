"""What happened -> Prometheus' text format. Needs `litebert[serve]`."""

from collections.abc import Callable

TIMES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters of one server; several in a process do not mix."""

    def __init__(self, inside: Callable[[], float], waiting: Callable[[], float]) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = CollectorRegistry()
        here = {"registry": self.registry}
        self.requests = Counter(
            "litebert_requests", "Requests by what was asked and the status it got.", ["ask", "status"], **here
        )
        self.seconds = Histogram(
            "litebert_request_seconds",
            "From a request's first byte to its answer's last.",
            ["ask"],
            buckets=TIMES,
            **here,
        )
        self.batch = Histogram("litebert_batch_items", "Items that went through together.", buckets=SIZES, **here)
        self.work = Histogram("litebert_batch_seconds", "Seconds of a batch in the model.", buckets=TIMES, **here)
        gauges = {
            "litebert_requests_inside": ("Requests being read, waiting or being answered.", inside),
            "litebert_requests_waiting": ("Requests that wait for the model.", waiting),
        }
        for name, (says, read) in gauges.items():
            Gauge(name, says, **here).set_function(read)

    def answered(self, ask: str, status: int, seconds: float) -> None:
        self.requests.labels(ask, str(status)).inc()
        self.seconds.labels(ask).observe(seconds)

    def ran(self, items: int, seconds: float) -> None:
        self.batch.observe(items)
        self.work.observe(seconds)

    def text(self) -> bytes:
        from prometheus_client import generate_latest

        found: bytes = generate_latest(self.registry)
        return found
