"""The answer to one scenario, whole or in the parts that a page asks for one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vramwise.web.bodies import Body, scenario_in

if TYPE_CHECKING:
    from vramwise.result import Result


def estimate(body: Body) -> dict[str, Any]:
    """The body is a scenario; the answer is what `vramwise estimate --json` prints."""
    result = _result(body)
    return result.to_dict(suggestions=result.verdict is not None)


def result(body: Body) -> dict[str, Any]:
    """The body is a scenario; the answer leaves the suggestions out, which take as many estimates as there are."""
    return _result(body).to_dict()


def suggestions(body: Body) -> dict[str, Any]:
    """The body is a scenario."""
    return {"suggestions": [dict(one) for one in _result(body).suggestions]}


def _result(body: Body) -> Result:
    from vramwise.estimation import estimate

    return estimate(scenario_in({"scenario": body}))
