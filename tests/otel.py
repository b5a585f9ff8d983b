"""An OpenTelemetry SDK that keeps what it gets, and whose ids are numbers: for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator

from minirun.plugins import TracingPlugin

__all__ = ["Recorder"]


class _Numbers(IdGenerator):
    """Ids that are numbers."""

    def __init__(self) -> None:
        self._next = count(1)

    def generate_span_id(self) -> int:
        return next(self._next)

    def generate_trace_id(self) -> int:
        return next(self._next)


class Recorder:
    """What spans and metrics there were."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        self.tracers = TracerProvider(id_generator=_Numbers())
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._metrics])

    def plugin(self, **options: Any) -> TracingPlugin:
        """A plugin whose spans and metrics come here."""
        return TracingPlugin(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """The spans that have ended, in that order."""
        return self._spans.get_finished_spans()

    def span(self, name: str) -> ReadableSpan:
        """The one span of this name."""
        [found] = (span for span in self.spans if span.name == name)
        return found

    def tree(self) -> list[str]:
        """The spans that have ended, each under its parent, in the order in which they began."""
        by_parent: dict[int | None, list[ReadableSpan]] = {}
        for span in sorted(self.spans, key=lambda span: span.context.span_id):
            by_parent.setdefault(None if span.parent is None else span.parent.span_id, []).append(span)

        def below(parent: int | None, depth: int) -> list[str]:
            lines = []
            for span in by_parent.get(parent, []):
                lines += ["  " * depth + span.name, *below(span.context.span_id, depth + 1)]
            return lines

        return below(None, 0)

    def metrics(self) -> Mapping[str, Any]:
        """The sum of each metric."""
        data = self._metrics.get_metrics_data()
        found = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []
        return {
            metric.name: sum(getattr(point, "sum", getattr(point, "value", None)) for point in metric.data.data_points)
            for metric in found
        }
