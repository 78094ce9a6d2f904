"""Where the keyboard's focus goes while a run asks: to the card that waits, and never away from somebody who types.

A widget can be told by the kernel to take the focus, but the kernel cannot see where the focus is. So a few lines of JavaScript
come with each card and toolbar, and look after the output area that they stand in. They are in the live widgets alone:
what is saved of a run has no script. Where a page forbids inline scripts nothing moves, and Tab leads to the card.
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
# `seen`: the cards and fields that have been there before. `parked`: where the focus waits without anybody having put it
# there, so that it goes on to what comes up. `isOurs`: whether the focus was in this area until now; it is taken up again
# when what had it is gone, and not when a person has left it by a click elsewhere. Enter in "Deny because" presses Deny, and
# in a field of the form it leads to Approve; both leave the field, whose content is sent by that. A key that is held
# down presses no button a second time.

FOCUS = f'<img hidden alt="" src="data:," onerror="{html.escape(_SCRIPT)}">'
"""The script, as an element for the HTML of a live widget."""
