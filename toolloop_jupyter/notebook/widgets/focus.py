"""Move the keyboard's focus to a card that waits for a decision, but never while a person types elsewhere.

The kernel can tell a widget to take the focus, but the kernel cannot see where the focus is. So each card and each toolbar
has a few lines of JavaScript. This script watches the output area around the widget. Only live widgets have the script; a
saved run has no script. If a page forbids inline scripts, the focus does not move, and a person can reach the card with the
Tab key.
"""

from __future__ import annotations

import html

_SCRIPT = """
const begin = (mark, patience) => {
  if (!mark.isConnected) return patience && setTimeout(begin, 50, mark, patience - 1);
  const area = mark.closest('.jp-OutputArea') ?? document.body;
  mark.remove();
  area.toolloopFocus ??= follow(area);
  area.toolloopFocus();
};
const follow = area => {
  const seen = new WeakSet();
  let parked, isOurs = area.contains(document.activeElement), end;
  const isGone = element => !element?.isConnected || element === document.body || element.matches(':disabled');
  const isTaken = () => {
    if (window !== window.parent && !document.hasFocus()) return true;
    const now = document.activeElement;
    return !isGone(now) && now.closest('input,textarea,select,[contenteditable="true"],.lm-Menu,.lm-MenuBar,dialog,[role="dialog"]');
  };
  const take = (element, mayScroll) => {
    parked = element.matches('button,input,select,textarea') ? undefined : element;
    if (parked && element.tabIndex < 0) element.tabIndex = -1;
    if (mayScroll) (element.matches('.tlj-form *') ? element : element.closest('.tlj-card')).scrollIntoView({block: 'nearest'});
    element.focus({preventScroll: true});
    isOurs = true;
  };
  const openCard = () => [...area.querySelectorAll('.tlj-card')].find(card => card.querySelector('.tlj-btn:enabled'));
  const rest = () => area.querySelector('.tlj-bar') ?? [...area.querySelectorAll('.tlj-foot')].at(-1)
    ?? [...area.querySelectorAll('.jp-OutputArea-output')].at(-1);
  const look = () => {
    const card = openCard(), now = document.activeElement;
    const form = card?.querySelector('.tlj-form :is(input,select,textarea)');
    for (const text of card?.querySelectorAll('.tlj-form textarea') ?? [])
      if (!seen.has(text)) seen.add(text), text.setSelectionRange(0, 0);
    if (form && !seen.has(form)) {
      seen.add(form);
      if (card.contains(now)) take(form, true);
    } else if (card ? !seen.has(card) && !isTaken() : false) {
      take(card.querySelector('.tlj-go:enabled') ?? card, true);
    } else if (isOurs && (isGone(now) || now === parked)) {
      let place = card ? card.querySelector('.tlj-go:enabled') ?? card : rest();
      if (place?.matches('details')) place = place.firstElementChild;
      if (place && place !== now) take(place, !!card);
    }
    if (card) seen.add(card);
    clearTimeout(end);
    if (!area.isConnected || !area.querySelector('.tlj-bar,.tlj-card')) end = setTimeout(leave, 2000);
  };
  const moved = event => {
    isOurs = area.contains(event.target);
    if (event.target !== parked) parked = undefined;
  };
  const left = event => setTimeout(() => {
    if (document.activeElement === document.body && !isGone(event.target)) isOurs = false;
  });
  const pressed = event => {
    if (event.key !== 'Enter' && event.key !== ' ') return;
    const on = event.target, card = on.closest('.tlj-card');
    const leadsTo = event.key === 'Enter' && card?.querySelector(
      on.matches('.tlj-why input') ? '.tlj-no:enabled' : on.matches('.tlj-form input') ? '.tlj-go:enabled' : ':not(*)');
    const isHeldDown = event.repeat && on.closest('.tlj-btn');
    if (!leadsTo && !isHeldDown && !(on === parked && on.matches('.tlj-card,.tlj-bar'))) return;
    event.preventDefault();
    event.stopPropagation();
    if (!leadsTo || event.repeat) return;
    leadsTo.focus();
    if (leadsTo.matches('.tlj-no')) leadsTo.click();
  };
  const observer = new MutationObserver(look);
  observer.observe(area, {childList: true, subtree: true, attributes: true, attributeFilter: ['disabled']});
  document.addEventListener('focusin', moved);
  document.addEventListener('focusout', left);
  area.addEventListener('keydown', pressed, true);
  const leave = () => {
    observer.disconnect();
    document.removeEventListener('focusin', moved);
    document.removeEventListener('focusout', left);
    area.removeEventListener('keydown', pressed, true);
    delete area.toolloopFocus;
  };
  return look;
};
begin(this, 100);
"""
# `seen`: the cards and fields that the script has seen before. `parked`: the element that has the focus until the next card
# comes. `isOurs`: true if the focus was in this area until now. If the focused element has disappeared, the script sets the
# focus again. If the person has clicked elsewhere, the script leaves the focus there. Enter in "Deny because" presses Deny.
# Enter in a field of the form moves the focus to Approve. In both cases the focus leaves the field, so the field's content is
# sent. A key that is held down presses a button only once.

FOCUS = f'<img hidden alt="" src="data:," onerror="{html.escape(_SCRIPT)}">'
"""The script as an HTML element. Live widgets have this element in their HTML."""
