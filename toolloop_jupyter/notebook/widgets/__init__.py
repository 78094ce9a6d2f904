"""The widgets of a run: the approval card, the edit form and the toolbar. Only this package imports ipywidgets."""

from .approval_card import ApprovalCard
from .controls import ClickTest, StepCard, Toolbar
