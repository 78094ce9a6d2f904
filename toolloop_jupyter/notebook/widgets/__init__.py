"""The only importer of ipywidgets: approval card, edit form, toolbar."""

from .approval_card import ApprovalCard
from .controls import ClickTest, StepCard, StopBar, Toolbar

__all__ = [
    "ApprovalCard",
    "ClickTest",
    "StepCard",
    "StopBar",
    "Toolbar",
]
