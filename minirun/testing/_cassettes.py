"""
What the fixture `cassette` of pytest gives a test: models that are recorded, or replayed, in a file beside the test.

The file of a test is `cassettes/MODULE/TEST.jsonl`, in the folder of the test's module.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from .._json import brief
from ..errors import ConfigurationError
from ..models import BaseLlm, RecordedLlm

__all__ = ["Cassettes"]

# What every file system can write in a name.
_UNUSUAL = re.compile(r"[^A-Za-z0-9_.-]+")
NAME_CHARS_MAX = 100


class Cassettes:
    """
    Gives models of one test. Call it: `cassette(model)`.

    Args:
        module: The file of the test's module.
        test: The name of the test, with its class and its parameters.
        records: Whether models are asked, and recorded.
        repeats: Whether a request that comes again is answered again; see `RecordedLlm`.
    """

    def __init__(self, module: Path, test: str, *, records: bool, repeats: bool) -> None:
        self.folder = module.parent / "cassettes" / module.stem
        self._test = test
        self._records = records
        self._repeats = repeats
        self._made: list[RecordedLlm] = []

    def __call__(
        self, model: BaseLlm | Callable[[], BaseLlm] | None = None, name: str | None = None, *, pace: float = 0.0
    ) -> RecordedLlm:
        """
        Return a model that replays its cassette or, with `pytest --record-models`, records *model*.

        Args:
            model: The model, or a function that makes it, which is called to record only; then a replay needs neither
                keys nor the provider's package.
            name: The name of the file, without `.jsonl`; the test's own if it is left out. Give one where a test has
                several models, or where tests share a file that one of them records.
            pace: See `RecordedLlm`; replaying takes no time unless something else is given here.

        Raises:
            CassetteError: There is no such file to replay.
            ConfigurationError: An argument cannot be used, or there is no model to record.
        """
        if name is not None and (not isinstance(name, str) or not name or _UNUSUAL.search(name)):
            expected = "expected the name of a cassette to be of letters, digits and any of '_.-'"
            raise ConfigurationError(f"{expected}, found {brief(name)}")
        path = self.folder / f"{name or file_name(self._test)}.jsonl"
        made = self._model(model)
        if self._records:
            recorded = RecordedLlm(made, path, "record", pace=pace)
        else:
            recorded = RecordedLlm(made, path, pace=pace, repeat=self._repeats)
        self._made.append(recorded)
        return recorded

    def _model(self, model: object) -> BaseLlm | None:
        if model is None or isinstance(model, BaseLlm):
            return model
        if not callable(model):
            msg = f"expected a model (BaseLlm), or a function that makes one, found {brief(model)}"
            raise ConfigurationError(msg)
        made: BaseLlm | None = model() if self._records else None  # RecordedLlm refuses what is no model
        return made

    def close(self) -> None:
        """End what is recorded."""
        for recorded in self._made:
            recorded.close()

    def assert_done(self) -> None:
        """
        Check that everything in the cassettes was asked for.

        Raises:
            CassetteError: Exchanges are left over.
        """
        for recorded in self._made:
            recorded.assert_done()


def file_name(test: str) -> str:
    """The name of a test's file: its own, if a file can have it; else as much of it as can be, and a hash of it."""
    usual = _UNUSUAL.sub("-", test).strip("-")
    if usual == test and len(test) <= NAME_CHARS_MAX:
        return test
    return f"{usual[:NAME_CHARS_MAX]}-{blake2b(test.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"
