"""Define the look of blocks: inline styles for their shape, and a style sheet for their colours.

If a notebook is not trusted, its viewer removes `<style>` and all inline values with `var()` or `color-mix()` (seen in
JupyterLab 4.6). A site that hosts code may remove all styles. So the HTML must be readable without styles. The style sheet
`STYLE` applies to the whole page, so only one block of a run contains it. Most colours are made from the text colour of the page.
The strong colours have two values: one for light pages and one for dark pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"

BLOCK = "margin:0 0 4px"
DIM = "opacity:.72;font-size:90%"
CALL = "margin:0 0 4px;padding-left:10px;border-left:2px solid rgba(128,128,128,.35)"
SUMMARY = "cursor:pointer"
NAME = "font-weight:600"
WIDE = "overflow-x:auto"
PRE = f"margin:4px 0;white-space:pre-wrap;overflow-wrap:anywhere;max-height:22em;overflow:auto;font-family:{MONO}"
CODE = f"margin:6px 0;white-space:pre-wrap;overflow-wrap:anywhere;font-family:{MONO}"
INLINE_CODE = "white-space:pre-wrap;overflow-wrap:anywhere"  # for code in a line or a table; several blanks in a row stay visible
TABLE = "border-collapse:collapse;margin:4px 0"
CELL = "text-align:left;vertical-align:top;padding:3px 14px 3px 0"

_LIGHT = (
    "--tlj-ok:#1a7f37;--tlj-bad:#cf222e;--tlj-ask:#9a6700;"
    "--tlj-k:#8250df;--tlj-s:#0a5a2f;--tlj-m:#0550ae;--tlj-f:#953800"
)
_DARK = (
    "--tlj-ok:#57ab5a;--tlj-bad:#f47067;--tlj-ask:#d4a72c;"
    "--tlj-k:#c99bff;--tlj-s:#8ddb8c;--tlj-m:#6cb6ff;--tlj-f:#f0a864"
)
# Selectors for dark pages. The first is for JupyterLab, Notebook 7 and nbconvert. Two are for VS Code, and one is for Colab. The
# last is for themes of Jupyter Book and Sphinx.
_DARK_PAGES = (
    '[data-jp-theme-light="false"]',
    ".vscode-dark",
    ".vscode-high-contrast",
    'html[theme="dark"]',
    '[data-theme="dark"]',
)

# The class is written three times, so that these rules have priority over JupyterLab's rules for code and striped tables.
_RULES = """
.tlj.tlj.tlj{--tlj-line:color-mix(in srgb,currentColor 16%,transparent);--tlj-soft:color-mix(in srgb,currentColor 5%,transparent);
 overflow-wrap:anywhere;line-height:1.5}
.tlj.tlj.tlj code,.tlj.tlj.tlj pre,.tlj.tlj.tlj pre code{font:12.5px/1.5 MONO;background:none;color:inherit;padding:0;border:0}
.tlj.tlj.tlj pre{margin:6px 0;padding:8px 10px;background:var(--tlj-soft);border-radius:4px;word-break:normal}
.tlj.tlj.tlj p,.tlj.tlj.tlj ul,.tlj.tlj.tlj ol,.tlj.tlj.tlj blockquote{margin:0 0 .5em}
.tlj.tlj.tlj p:last-child{margin-bottom:0}
.tlj.tlj.tlj blockquote{padding-left:10px;border-left:2px solid var(--tlj-line)}
.tlj.tlj.tlj .tlj-h{margin:.9em 0 .3em;line-height:1.35}.tlj.tlj.tlj .tlj-h1{font-size:1.25em}.tlj.tlj.tlj .tlj-h2{font-size:1.12em}
.tlj.tlj.tlj .tlj-h:first-child{margin-top:0}
.tlj.tlj.tlj table{border-collapse:collapse;margin:4px 0;font-size:inherit;table-layout:auto;border:0}
.tlj.tlj.tlj tr,.tlj.tlj.tlj tbody tr:nth-child(n),.tlj.tlj.tlj tbody tr:hover{background:none}
.tlj.tlj.tlj th,.tlj.tlj.tlj td{border:0;border-bottom:1px solid var(--tlj-line);padding:3px 14px 3px 0;max-width:none;white-space:normal}
.tlj.tlj.tlj th,.tlj.tlj.tlj td{overflow-wrap:break-word;vertical-align:top;line-height:1.4}.tlj.tlj.tlj th{font-weight:600}
.tlj-text.tlj,.tlj-answer.tlj{margin:6px 0!important}
.tlj.tlj.tlj :is(p,li,td)>code,.tlj.tlj.tlj :is(p,li,td)>em>code{display:inline-block;max-width:100%}
.tlj.tlj.tlj table table{margin:0}.tlj.tlj.tlj table table tr:last-child>*{border-bottom:0}
.tlj.tlj.tlj a{color:var(--tlj-m);text-decoration:underline}.tlj.tlj.tlj summary{cursor:pointer}
.tlj.tlj.tlj img{max-width:100%}
.tlj-head.tlj{border-bottom:1px solid var(--tlj-line);padding-bottom:4px;margin-bottom:8px}
.tlj-foot.tlj{border-top:1px solid var(--tlj-line);padding-top:4px;margin-top:8px}
.tlj-call.tlj>summary{display:flex;flex-wrap:wrap;gap:0 8px;align-items:baseline;list-style:none;position:relative;padding-right:18px}
.tlj-call.tlj>summary::-webkit-details-marker{display:none}
.tlj-call.tlj>summary::after{content:"\\25B8";opacity:.5;font-size:11px;width:.8em;position:absolute;right:2px;top:.35em}
.tlj-call.tlj[open]>summary::after{content:"\\25BE"}
.tlj-reason.tlj[open]>summary>.tlj-args{white-space:normal!important}
.tlj-reason.tlj:not([open])>summary>.tlj-args::after{content:"…"}
.tlj-call.tlj{border-left-color:var(--tlj-line)!important}
.tlj-call.tlj>summary>.tlj-name{white-space:nowrap}
.tlj.tlj.tlj .tlj-name{font-weight:600}
.tlj.tlj.tlj .tlj-args{flex:1;min-width:6em;overflow:hidden;text-overflow:ellipsis;white-space:pre;opacity:.72}
.tlj.tlj.tlj .tlj-time{opacity:.72;font-size:12px;max-width:100%}
.tlj-ok{color:var(--tlj-ok)}.tlj-bad{color:var(--tlj-bad)}.tlj-ask{color:var(--tlj-ask)}
.tlj .tk{color:var(--tlj-k)}.tlj .ts{color:var(--tlj-s)}.tlj .tm{color:var(--tlj-m)}.tlj .tf,.tlj .tb{color:var(--tlj-f)}
.tlj .tc{opacity:.65;font-style:italic}.tlj .ti{color:var(--tlj-ok)}.tlj .td{color:var(--tlj-bad)}
@media (max-width:520px){.tlj-call.tlj>summary>.tlj-args{flex-basis:6em}.tlj-call.tlj>summary>.tlj-time{flex:1 1 100%;padding-left:1.5em}
 .tlj-answer.tlj.tlj td{overflow-wrap:anywhere}}
@media (max-width:760px){.jp-OutputArea-output>.tlj.tlj.tlj{margin-left:8px!important}}
@media print{.tlj.tlj.tlj pre{max-height:none!important}.tlj.tlj.tlj .tlj-args{white-space:normal}
 .tlj details::details-content,details.tlj::details-content{content-visibility:visible!important;block-size:auto!important}}
"""


_TAG = re.compile("<[^>]*>")


def pre(inner: str) -> str:
    """Return preformatted text as a `<pre>`. If the text is so long that it scrolls, the keyboard can focus and scroll it."""
    scrolls = len(inner) > 10_000 or sum(1 + len(line) // 80 for line in _TAG.sub("", inner).split("\n")) > 13
    focus = ' tabindex="0"' if scrolls else ""
    return f'<pre style="{PRE}"{focus}>{inner}</pre>'


def block(css: str, inner: str, style: str = BLOCK) -> str:
    """Return a `<div>` with the content `inner`, which is HTML. The `<div>` has the classes `tlj` and `css`."""
    return f'<div class="tlj {css}" style="{style}">{inner}</div>'


def fold(title: str, inner: str, css: str = "", *, opened: bool = False) -> str:
    """Return a `<details>` element: a click on `title` shows or hides `inner`. `css` is a class of the element."""
    style, line = (CALL, SUMMARY) if css else (BLOCK, f"{SUMMARY};{DIM}")
    name = f'class="tlj {css}" ' if css else ""
    return f'<details {name}style="{style}"{" open" * opened}><summary style="{line}">{title}</summary>{inner}</details>'


def dim(inner: str, tag: str = "div") -> str:
    """Return an element that shows `inner` in a pale colour, for details that are less important."""
    return f'<{tag} style="{DIM}">{inner}</{tag}>'


def table(rows: Iterable[tuple[str, str]], *, head: str = "td") -> str:
    """Return an HTML table of (name, value) rows, both HTML; "" without rows. `head` is the tag of the cells with the names."""
    scope = ' scope="row"' if head == "th" else ""
    inner = "".join(
        f'<tr><{head} style="{CELL}"{scope}>{name}</{head}><td style="{CELL}">{value}</td></tr>'
        for name, value in rows
    )
    return f'<table style="{TABLE}">{inner}</table>' if inner else ""


_DARK_BLOCKS = ",".join(f"{page} .tlj" for page in _DARK_PAGES)
STYLE = f"<style>.tlj{{{_LIGHT}}}{_DARK_BLOCKS}{{{_DARK}}}{_RULES.replace('MONO', MONO)}</style>".replace(
    "\n", ""
)
"""The style sheet, as a `<style>` element. A page needs this element only once."""


def put_style_behind(html: str) -> str:
    """Return `html` with the style sheet at the end of its last `<details>` element."""
    before, end, after = html.rpartition("</details>")
    return f"{before}{STYLE}{end}{after}"


DARK_PAGE = f"<style>@media (prefers-color-scheme:dark){{html .tlj{{{_DARK}}}}}</style>"
"""The dark colours for an exported page, which has no theme. The page is dark if the reader's system uses dark mode."""

_CARD_RULES = """
.tlj-card{border:1px solid var(--tlj-ask);border-radius:6px;padding:10px 12px!important;margin:4px 0!important;
 color:var(--jp-content-font-color1,inherit);overflow:visible;--tlj-names:min(110px,15vw)}
.tlj-card .widget-html,.tlj-card .widget-html-content,.tlj-bar .widget-html,.tlj-bar .widget-html-content{height:auto;
 line-height:1.5;font-size:14px;color:inherit;width:auto;max-width:100%;align-self:stretch;margin:0;overflow:visible;white-space:normal}
.tlj-card .tlj table{width:100%}
.tlj-card .tlj th{width:var(--tlj-names);opacity:.8}
.tlj-card .tlj-title{margin:0 0 6px}
.tlj-card .tlj p{margin:4px 0}
.tlj-row{display:flex;flex-flow:row wrap!important;align-items:center;gap:6px;margin-top:8px!important;overflow:visible}
.tlj-row>*,.tlj-bar>*{margin:0!important}
.tlj-btn.tlj-btn{font:13px/1.5 system-ui,sans-serif;height:auto;padding:3px 12px;border:1px solid rgba(128,128,128,.4);border-radius:4px;
 background:rgba(128,128,128,.1);color:inherit;box-shadow:none;width:auto}
.tlj-btn.tlj-btn:hover:enabled{background:rgba(128,128,128,.22);box-shadow:none}
.tlj-btn.tlj-btn:focus-visible{outline:2px solid var(--tlj-m);outline-offset:1px}
.tlj-btn.tlj-btn.tlj-go{background:var(--tlj-ok);border-color:var(--tlj-ok);color:var(--tlj-on)}
.tlj-btn.tlj-btn.tlj-go:hover:enabled{background:var(--tlj-ok);filter:brightness(1.1)}
.tlj-btn.tlj-btn:disabled{opacity:.45}
.tlj-why{flex:1 1 14em!important;min-width:10em;width:auto!important}
.tlj-all{width:auto!important;flex:0 1 auto;max-width:100%;min-width:0}.tlj-all select{min-width:0;flex:1 1 auto}
.tlj-all .widget-label-basic,.tlj-all label{max-width:none}
.tlj-bar{display:flex;flex-flow:row nowrap!important;align-items:flex-start;gap:4px 12px;overflow:visible}
.tlj-bar>.widget-html{flex:1 1 0!important;min-width:0}.tlj-bar>.tlj-btn{flex:none}
.tlj-status>*{margin-right:10px;white-space:nowrap}.tlj-status>b{white-space:normal}
.tlj-card.jupyter-widgets-disconnected>*,.tlj-bar.jupyter-widgets-disconnected>*{display:none!important}
.tlj-card.jupyter-widgets-disconnected::before,.tlj-bar.jupyter-widgets-disconnected::before{
 font:14px/1.5 system-ui,sans-serif;color:inherit;padding:0;content:"The kernel of this run is gone, so the run has ended."}
.tlj-card.jupyter-widgets-disconnected::before{content:"The kernel that asked here is gone: what it asked about was not run. Run the cell again."}
.tlj-card:focus,.tlj-bar:focus{outline:2px solid var(--tlj-m);outline-offset:1px}
.tlj-card select{appearance:auto;background-image:none!important}
.tlj-field{overflow:visible;margin-top:4px}.tlj-field>*,.tlj-why{width:auto!important;height:auto;overflow:visible}
.tlj-field .widget-label,.tlj-why .widget-label{width:auto!important;min-width:var(--tlj-names);text-align:left}
.tlj-card .widget-label{color:inherit;opacity:.85}
.tlj-why .widget-label{min-width:0}.tlj-field select{min-height:28px}
.tlj-field>.widget-html{margin-left:calc(var(--tlj-names) + 10px)!important}.tlj-field>.widget-checkbox+.widget-html{margin-left:0!important}
@media (max-width:760px){.jp-OutputArea-output :is(.tlj-card,.tlj-bar){margin-left:8px!important}}
"""

CARD_STYLE = (
    f"<style>.tlj-card,.tlj-bar{{{_LIGHT};--tlj-on:#fff;color-scheme:light}}"
    + ",".join(f"{page} .tlj-card,{page} .tlj-bar" for page in _DARK_PAGES)
    + f"{{{_DARK};--tlj-on:#111;color-scheme:dark}}"
    + _CARD_RULES.replace("\n", "")
    + "</style>"
)
"""The style sheet of the widgets, as a `<style>` element."""
