"""
What a function's docstring tells a model: the text about the function, and one about each parameter in its schema.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minirun._json import freeze
from minirun.flows._docstring import documentation_of, parsed_docstring
from minirun.flows._signature import signature_of
from minirun.tools import FunctionTool

from ..schemas import schema_for


def parsed(doc: str) -> tuple[str, dict[str, str]]:
    found = parsed_docstring(doc)
    return found.summary_text, dict(found.params)


# --- notations --------------------------------------------------------------------------------------------------------

GOOGLE = """
    Look up the weather.

    Asks a station nearby.

    Args:
        city: The city, in English.
        day (datetime.date | None): The day to look up,
            today if left out.

            Not earlier than last week.
        options (Callable[[int], str], optional): One of
            - short
            - long
              or longer
        *stations: Names of stations.
        low, high: The bounds.
        link: See
            http://example.org: it is long
        silent:

    Returns:
        A sentence: not a parameter.

    Raises:
        ValueError: There is no such city.
    """

PARAMS = {
    "city": "The city, in English.",
    "day": "The day to look up, today if left out.\n\nNot earlier than last week.",
    "options": "One of\n- short\n- long\n  or longer",
    "stations": "Names of stations.",
    "low": "The bounds.",
    "high": "The bounds.",
    "link": "See http://example.org: it is long",
}


def test_googles_notation_gives_the_texts() -> None:
    """
    Google's notation gives each described parameter its text, and every other section stays.
    """
    text, params = parsed(GOOGLE)
    assert params == PARAMS
    assert text.startswith("Look up the weather.\n\nAsks a station nearby.\n\n")
    assert "A sentence: not a parameter." in text
    assert "There is no such city." in text
    assert not any(word in text for word in ("city,", "last week", "stations:", "silent", "arg"))
    assert "\n\n\n" not in text


def test_the_text_without_its_parameters() -> None:
    """
    Where the parameters stood, one blank line stays.
    """
    text, _ = parsed(GOOGLE)
    assert text == textwrap.dedent(
        """\
        Look up the weather.

        Asks a station nearby.

        Returns:
            A sentence: not a parameter.

        Raises:
            ValueError: There is no such city."""
    )


@pytest.mark.parametrize(
    "title", ["Arguments", "Parameters", "Params", "Keyword Args", "Keyword Arguments", "Other Parameters", "args"]
)
def test_other_titles_of_the_section(title: str) -> None:
    """
    The section has several usual titles, and there may be several sections; the first text of a parameter stays.
    """
    text, params = parsed(f"Do.\n\nArgs:\n  a: One.\n\n{title}:\n  a: Two.\n  b: Three.\n\nNote:\n  Four.")
    assert params == {"a": "One.", "b": "Three."}
    assert text == "Do.\n\nNote:\n  Four."


@pytest.mark.parametrize(
    "doc",
    [
        "Do.",
        "Args:",
        "Args:\n",
        "Args: city, day",
        "Do.\n\nArgs:\n    None.",
        "Do.\n\nArgs:\nx: not indented",
        "Do.\n\nThe args:\n    x: not a title",
        "Do::\n\n    Args:\n        x: an example in the text\n\nso.",
        "Do.\n\nParameters\n----------",
        "Do.\n\nParameters\n----------\n\nReturns\n-------\nstr",
        "Do.\n\nParameters\n--\nx : int\n    Too short a line.",
        ":param:",
        ":param x",
        ":return: x",
        "Do.\n\n:param x: The x.",
        "Do.\n\nParameters\n----------\nx : int\n    The x.",
        "Ratio a:param b: c",
    ],
)
def test_what_is_no_parameter_stays_in_the_text(doc: str) -> None:
    """
    A docstring in which no parameter is found is its own text.
    """
    assert parsed(doc) == (doc.strip(), {})


@pytest.mark.parametrize("doc", ["", "  \n ", None, 7])
def test_no_docstring_says_nothing(doc: Any) -> None:
    """
    Without a docstring, or with something else in its place, there is neither text nor parameter.
    """
    assert parsed_docstring(doc) == parsed_docstring(None)
    assert parsed_docstring(None).summary_text == ""


def test_an_unindented_line_of_a_google_section_belongs_to_the_parameter_above() -> None:
    """
    A line at the place of a parameter that describes none goes on with the text above it.
    """
    assert parsed("Do.\n\nArgs:\n  a: One\n  and two.\n  b: Three.")[1] == {"a": "One and two.", "b": "Three."}


def test_a_lone_surrogate_is_replaced() -> None:
    """
    Half of a surrogate pair, which no log could store, becomes the replacement character.
    """
    text, params = parsed("Do \ud800.\n\nArgs:\n    x: The \udfff.")
    assert (text, params) == ("Do \ufffd.", {"x": "The \ufffd."})


PIECES = [
    "Args:",
    "Parameters",
    "----------",
    "---",
    ":param x: y",
    ":param",
    ":type x: z",
    "x: y",
    "x : int",
    "*x, **y (a): b",
    "(",
    ")",
    ":",
    "- item",
    "Returns:",
    "a b c",
    "",
]
lines = st.tuples(st.sampled_from(["", " ", "    ", "\t", "        "]), st.sampled_from(PIECES) | st.text(max_size=6))
docs = st.lists(lines.map("".join), max_size=12).map("\n".join)


@given(docs | st.text())
@example("Args:\nArgs:\n Args:\n    Args:\n Parameters")  # the first line is indented more than the others
def test_no_docstring_is_an_error(doc: str) -> None:
    """
    Whatever stands in a docstring is read, can be stored, and only loses lines: those of parameters.
    """
    found = parsed_docstring(doc)
    freeze([found.summary_text, dict(found.params)])
    left = iter(inspect.cleandoc(re.sub("[\ud800-\udfff]", "\ufffd", doc)).split("\n"))
    assert all(any(line.strip() in other for other in left) for line in found.summary_text.split("\n"))
    assert all(text == text.strip() and text for text in found.params.values())


@given(docs)
def test_the_text_has_no_more_parameters(doc: str) -> None:
    """
    What is left without parameters is left as it is.
    """
    found = parsed_docstring(doc)
    if not found.params and not any(":" in line for line in doc.split("\n")) and "---" not in doc:
        assert found.summary_text == inspect.cleandoc(doc).strip()


# --- schemas ----------------------------------------------------------------------------------------------------------


def forecast(
    city: str, day: Annotated[int, "days from now"] = 0, *, unit: str | None = None, silent: bool = False
) -> str:
    """
    Tell the weather to come.

    Args:
        city: The city, in English.
        day: Something else than the annotation says.
        unit: Celsius
            or Fahrenheit.
        sun: No parameter.

    Returns:
        A sentence.
    """
    return city


def described(func: Callable[..., object]) -> dict[str, str | None]:
    properties = signature_of(func, skip=()).schema["properties"]
    return {name: schema.get("description") for name, schema in properties.items()}


FORECAST = {"city": "The city, in English.", "day": "days from now", "unit": "Celsius or Fahrenheit.", "silent": None}


def test_parameters_are_described_in_the_schema() -> None:
    """
    A parameter's text is the description of its property, unless its annotation has one; other names are ignored.
    """
    assert described(forecast) == FORECAST
    schema = signature_of(forecast, skip=()).schema["properties"]["unit"]
    assert list(schema) == ["anyOf", "description", "default"]


def test_other_callables_are_described() -> None:
    """
    Partials, methods and wrapped functions have the docstring of the function, classes that of the class.
    """

    @functools.wraps(forecast)
    def wrapper(*args: Any, **kwargs: Any) -> str:
        return forecast(*args, **kwargs)

    class Station:
        """
        A station.

        Args:
            place: Where it stands.
        """

        def __init__(self, place: str) -> None:
            """Build it."""

        def ask(self, city: str) -> None:
            """
            Ask it.

            Args:
                city: Where.
            """

    class NewStation(Station):
        def ask(self, city: str) -> None:
            pass

    assert described(wrapper) == FORECAST
    assert described(functools.cache(forecast)) == FORECAST
    assert described(functools.partial(functools.partial(forecast, unit="C"), "Oslo")) == {
        "day": "days from now",
        "silent": None,
    }
    assert described(Station("here").ask) == {"city": "Where."}
    assert described(Station) == {"place": "Where it stands."}


class Desk:
    """
    Books a room.

    Args:
        city: Where the desk stands.
    """

    def __init__(self, city: str) -> None:
        self.city = city

    def __call__(self, city: str, nights: int) -> str:
        """
        Book.

        Args:
            city: Where to.
        """
        return city


class Silent:
    def __call__(self, city: str) -> str:
        return city


class Documented:
    def __call__(self, city: str) -> str:
        """Say it."""
        return city


class Outlined:
    """Says it."""

    def __call__(self, city: str) -> str:
        return city


def test_an_object_is_described_by_its_call_or_else_by_its_class() -> None:
    """
    The parameters of an object are always those of its `__call__`: a class describes the ones of its constructor.
    """
    assert documentation_of(Desk("Oslo")).summary_text == "Book."
    assert documentation_of(Outlined()).summary_text == "Says it."
    assert described(Desk("Oslo")) == {"city": "Where to.", "nights": None}
    assert documentation_of(Silent()).summary_text == ""
    assert documentation_of(Documented()).summary_text == "Say it."


def test_the_fields_of_classes_are_described() -> None:
    """
    The docstrings of dataclasses, attrs classes and TypedDicts describe the fields, inherited ones too.
    """

    @dataclasses.dataclass
    class Room:
        """
        A room.

        Attributes:
            beds: How many beds.
            view: Onto what.
        """

        beds: int
        view: str = ""

    @dataclasses.dataclass
    class Suite(Room):
        """
        Several rooms.

        Attributes:
            view: Onto the sea.
            rooms: How many rooms.
        """

        rooms: Annotated[int, "at least two"] = 2

    @attrs.define
    class Guest:
        """
        A guest.

        Args:
            name: As in the passport.
        """

        _name: str

    class Stay(TypedDict):
        """
        A stay.

        Attributes:
            nights: How many nights.
        """

        nights: int

    def texts(tp: object) -> dict[str, str]:
        return {name: schema.get("description", "") for name, schema in schema_for(tp)["properties"].items()}

    assert texts(Room) == {"beds": "How many beds.", "view": "Onto what."}
    assert texts(Suite) == {"beds": "How many beds.", "view": "Onto the sea.", "rooms": "at least two"}
    assert texts(Guest) == {"name": "As in the passport."}
    assert texts(Stay) == {"nights": "How many nights."}


def test_a_tool_tells_each_thing_once() -> None:
    """
    A function's tool is described by the text without the parameters, which are described in its schema.
    """
    declaration = FunctionTool(forecast).declaration
    assert declaration.description == "Tell the weather to come.\n\nReturns:\n    A sentence."
    assert declaration.parameters["properties"]["city"]["description"] == "The city, in English."
    assert FunctionTool(forecast, description="Ask the sky.").declaration.description == "Ask the sky."
