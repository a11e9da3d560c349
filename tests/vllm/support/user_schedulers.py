"""Scheduler classes that a user names: one that calls vLLM's methods, and one that does not."""

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler


class Counting(Scheduler):
    """Counts steps and results, as NVIDIA Dynamo's times them: in part by helpers."""

    counted = (0, 0)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        return self._timed(*args, **kwargs)

    def _timed(self, *args: Any, **kwargs: Any) -> Any:
        output = super().schedule(*args, **kwargs)
        self.counted = self.counted[0] + 1, self.counted[1]
        return output

    def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
        self.counted = self.counted[0], self.counted[1] + 1
        return super().update_from_output(*args, **kwargs)


class Replacing(Counting):
    """Schedules by itself."""

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        return Scheduler.schedule(self, *args, **kwargs)
