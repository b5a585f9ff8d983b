"""The fixture `cassette` of pytest: models recorded into, or replayed from, `cassettes/MODULE/TEST.json`."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from ..errors import ConfigurationError
from ..models import BaseLlm, RecordedLlm

__all__ = ["Cassettes"]

# Every file system accepts the other characters in a name.
_UNUSUAL = re.compile(r"[^A-Za-z0-9_.-]+")
# File systems accept 255 bytes; a hash and the suffix follow.
NAME_CHARS_MAX = 100


class Cassettes:
    """
    The models of one test. Call it: `cassette(model)`.

    Args:
        module: The file of the test's module.
        test: The name of the test, with its class and its parameters.
        records: True if models are called and recorded.
    """

    def __init__(self, module: Path, test: str, *, records: bool) -> None:
        self._folder = module.parent / "cassettes" / module.stem
        self._test = test
        self._records = records
        self.models: list[tuple[str, RecordedLlm]] = []

    def __call__(self, model: BaseLlm | Callable[[], BaseLlm] | None = None, name: str | None = None) -> RecordedLlm:
        """
        Return a model that replays its cassette or, with `pytest --record-models`, records *model*.

        Args:
            model: The model, or a function that makes it. The function is called to record only, so a replay needs
                neither keys nor the provider's package.
            name: The name of the file without `.json`, by default the name of the test. A test with several models
                needs one name for each; tests that share a file use the same name.

        Raises:
            CassetteError: There is no such file to replay.
            ConfigurationError: There is no model to record, or its file is recorded by another model.
        """
        file = f"{file_name(name or self._test)}.json"
        if not self._records:
            recorded = RecordedLlm(None, self._folder / file)
        elif file in (other for other, _ in self.models):
            expected = f"expected one model for the cassette {file}, found a second one"
            raise ConfigurationError(f"{expected}; give each a name: cassette(model, name)")
        else:
            made = model if model is None or isinstance(model, BaseLlm) else model()
            recorded = RecordedLlm(made, self._folder / file, "record")
        self.models.append((file, recorded))
        return recorded


def file_name(test: str) -> str:
    """Return the test's name if every file system accepts it, else a shortened one with a hash."""
    usual = _UNUSUAL.sub("-", test).strip("-")
    if usual == test and len(test) <= NAME_CHARS_MAX:
        return test
    return f"{usual[:NAME_CHARS_MAX]}-{blake2b(test.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"
