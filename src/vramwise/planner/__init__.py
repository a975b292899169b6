"""What to change so that a scenario fits: every answer is a full estimate of a changed scenario."""

from vramwise.planner.suggestions import Suggestion, suggestions

__all__ = ["Suggestion", "suggestions"]
