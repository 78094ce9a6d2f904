"""Turn the Markdown text of a model (CommonMark with tables and strikethrough) into HTML that loads nothing and runs no code.

Raw HTML in the text is shown as text. Links have only http, https and mailto addresses, and the address can be seen. Images
become links, because the request for a picture can send data to the picture's server. Headings are `<p>` elements, because JupyterLab
would put `<h1>` to `<h6>` into the notebook's table of contents. `guard_math` hides each `$` outside of formulas from MathJax.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from .escape import SAFE_LINK, esc, guard_math, mark_hidden_in_prose
from .style import CELL, CODE, TABLE

if TYPE_CHECKING:
    from markdown_it.renderer import RendererProtocol
    from markdown_it.utils import EnvType, OptionsDict

LONGEST = 200_000  # if a text has more characters, it is shown without formatting
_MARKS, MOST_MARKS = "![]*_~|`$\\<\n", 6_000
"""`_MARKS` cost the parser much time. A text with more than `MOST_MARKS` of these characters is shown without formatting."""
_QUOTE, _MARKS_OF_A_QUOTE = re.compile(r"^[ \t]*>", re.MULTILINE), 20
"""The beginning of a quoted line. One such line counts as 20 of the `_MARKS`, because it costs the parser (markdown-it-py 4) much
time: the parser looks for the end of the quote in all later lines."""
_DEEPEST_INLINE = 10

_OURS = """
    text code_inline fence code_block image link_open heading_open heading_close table_open th_open td_open math
    """
"""The types of tokens that `_render` renders. markdown-it renders all other tokens."""


def _render(
    renderer: RendererProtocol, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
) -> str:
    """Return the HTML of one token. `env["streaming"]` is True while the model is still writing the text."""
    token, is_streaming = tokens[idx], bool(env.get("streaming"))
    match token.type:
        case "code_inline":
            return f"<code>{esc(token.content)}</code>"
        case "fence":
            language = "" if is_streaming else token.info.split(" ")[0][:32]
            return f'<pre style="{CODE}"><code>{highlight(token.content.rstrip(), language)}</code></pre>\n'
        case "code_block":
            return f'<pre style="{CODE}"><code>{esc(token.content.rstrip())}</code></pre>\n'
        case "image":
            target = str(token.attrs.get("src", ""))
            return f"{_make_link_tag(target)}{_write_words(token.content or 'image')} (image, not loaded)</a>"
        case "link_open":
            return _make_link_tag(str(token.attrs.get("href", "")))
        case "heading_open":
            level = int(token.tag[1])
            return (
                f'<p class="tlj-h tlj-h{level}" role="heading" aria-level="{_find_rank(level, env)}"><strong>'
            )
        case "heading_close":
            return "</strong></p>\n"
        case "table_open":
            return f'<table style="{TABLE}">\n'
        case "th_open" | "td_open":
            return _make_cell_tag(token)
        case "math":
            formula = _make_formula(token.content, display=token.meta["display"], typeset=not is_streaming)
            return f"<p>{formula}</p>\n" if token.block else formula
    return _write_words(token.content)


def _find_rank(level: int, env: EnvType) -> int:
    """Return the level of a heading for a screen reader: from 2 on, because the page's title has level 1, and without gaps."""
    above: list[int] = env.setdefault("headings", [])
    while above and above[-1] >= level:
        above.pop()
    above.append(level)
    return min(len(above) + 1, 6)


def _write_words(text: str) -> str:
    return guard_math(html.escape(mark_hidden_in_prose(text), quote=False))


def _make_link_tag(target: str) -> str:
    # The `title` shows the real address, because a link's text may name another address. Untrusted notebooks keep the `title`.
    address = html.escape(target)
    return f'<a href="{address}" title="{address}" target="_blank" rel="noopener noreferrer">'


def _make_cell_tag(token: Token) -> str:
    align = str(token.attrs.get("style", "")).removeprefix("text-align:")
    style = CELL.replace("text-align:left", f"text-align:{align}") if align in ("right", "center") else CELL
    return f'<{token.tag} style="{style}">'


def _bound_nesting(state: StateCore) -> None:
    """Remove emphasis and links that are nested deeper than `_DEEPEST_INLINE`. So the depth of the HTML is limited."""
    for token in state.tokens:
        if not token.children:
            continue
        kept: list[Token] = []
        depth = 0
        for child in token.children:
            depth += child.nesting == 1
            if not child.nesting or depth <= _DEEPEST_INLINE:
                kept.append(child)
            depth -= child.nesting == -1
        token.children = kept


@cache
def _make_parser() -> MarkdownIt:
    # The preset "commonmark" limits the nesting of blocks to 20 levels.
    md = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    for name in _OURS.split():
        md.add_render_rule(name, _render)
    md.validateLink = lambda url: bool(SAFE_LINK.match(url)) and len(url) <= 2_000  # type: ignore[method-assign]  # the documented way
    # All characters that are not ASCII, or not allowed in a URL, are percent-encoded. So a letter of another script that looks
    # like an ASCII letter can be seen. This is faster than a URL parser.
    md.normalizeLink = lambda url: quote(url, safe="%/:=&?~#+!$,;'@()*[]", errors="replace")  # type: ignore[method-assign]
    md.core.ruler.push("bound_nesting", _bound_nesting)
    md.inline.ruler.before("escape", "math", _read_inline)
    md.block.ruler.before("fence", "math_block", _read_block, {"alt": ["paragraph", "blockquote", "list"]})
    return md


def render_markdown(text: str, *, streaming: bool = False) -> str:
    """Return safe HTML for the Markdown in `text`.

    `streaming` means that the model is still writing. Then code has one colour, and formulas are shown as source. In the finished
    text, code has several colours, and formulas are typeset. A fence counts as code even before the model has closed it.
    """
    marks = sum(map(text.count, _MARKS)) + _MARKS_OF_A_QUOTE * len(_QUOTE.findall(text))
    if len(text) > LONGEST or marks > MOST_MARKS:
        return f'<pre style="{CODE}">{esc(text)}</pre>'
    return str(_make_parser().render(text, {"streaming": streaming})).strip()


def split_markdown(text: str, enough: int, longest: int) -> tuple[str, str] | None:
    """Split a text that the model is still writing. Return (the complete part, the rest), or None if no part is complete.

    The text is split before the last Markdown block if the earlier blocks have at least `enough` characters. If not, a text with
    more than `longest` characters is split at the end of a line. If that line is in a fence, the rest begins with a new fence.
    """
    ends = [match.end() for match in re.finditer("\n", text)]
    if len(text) < enough or not ends:
        return None
    tokens: list[Token] = []
    # Parses only the blocks, and not the markup inside them.
    _make_parser().block.parse(text[: ends[-1]], _make_parser(), {}, tokens)
    last = next((token for token in reversed(tokens) if token.level == 0 and token.map), None)
    if last is None:  # the text has only blank lines
        return None
    first_line, behind = last.map or (0, 0)
    begins = ends[first_line - 1] if first_line else 0
    if begins >= enough:
        return text[:begins], text[begins:]
    count = next((number for number, end in enumerate(ends, 1) if end > longest), 0)
    if not count:
        return None
    cut = ends[count - 1]
    is_closed = set(text[ends[count - 2] : cut].strip()) == set(last.markup)
    goes_on = last.type == "fence" and (count < behind or not is_closed)
    return text[:cut], (f"{last.markup}{last.info}\n" if goes_on else "") + text[cut:]


# --- formulas: `$…$`, `$$…$$`, `\(…\)` and `\[…\]`, kept for MathJax to typeset, or shown as source ---
#
# Some macros of MathJax have effects outside of the formula: `\href` makes links; `\unicode`, `\class` and `\style` change the
# page; `\def` and `\require` change all later formulas. So MathJax gets a formula only if each macro is in `_NOTATION`, and if
# its size is limited: without very many rows, and without a length behind `\\`. All other formulas are shown as source.
#
# A `$` can also mean money. As in pandoc and dollarmath, a formula has no space directly inside its `$` signs, and no letter or
# digit directly outside. A text between two `$` signs is not a formula if it is an amount followed by words, or if it looks
# like `${A}:${B}` in a shell.

LONGEST_FORMULA = 2_000  # characters; without a limit, the search for the end of a formula could take long
_DEEPEST = 20
_MOST_ROWS = 60

_NOTATION = frozenset(
    """
    alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa varkappa lambda mu nu xi omicron pi varpi
    rho varrho sigma varsigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi
    Omega digamma aleph beth gimel hbar hslash ell wp Re Im imath jmath partial nabla infty emptyset varnothing forall
    exists nexists neg lnot top bot angle measuredangle triangle square blacksquare diamond Box Diamond star bigstar flat
    natural sharp clubsuit diamondsuit heartsuit spadesuit surd prime backprime mho eth complement degree checkmark
    frac dfrac tfrac cfrac binom dbinom tbinom sqrt root over atop choose stackrel overset underset
    sum prod coprod int iint iiint oint bigcup bigcap bigsqcup bigvee bigwedge bigoplus bigotimes bigodot biguplus
    lim limsup liminf sup inf max min arg argmax argmin det dim ker hom deg gcd lcm Pr exp log ln lg sin cos tan cot sec
    csc arcsin arccos arctan sinh cosh tanh coth mod bmod pmod pod operatorname limits nolimits displaylimits
    pm mp times div cdot cdotp ast circ bullet cap cup uplus sqcap sqcup vee lor wedge land setminus smallsetminus wr
    oplus ominus otimes oslash odot bigcirc dagger ddagger amalg lhd rhd unlhd unrhd ltimes rtimes
    le leq ge geq ne neq lt gt ll gg lll ggg leqslant geqslant lesssim gtrsim prec succ preceq succeq sim simeq approx
    approxeq cong equiv doteq propto models vdash dashv Vdash vDash perp parallel nparallel mid nmid bowtie smile frown
    asymp subset supset subseteq supseteq subsetneq supsetneq sqsubset sqsupset sqsubseteq sqsupseteq in ni notin owns
    not nless ngtr nleq ngeq nsubseteq nsupseteq therefore because colon coloneqq triangleq
    to gets leftarrow rightarrow leftrightarrow Leftarrow Rightarrow Leftrightarrow uparrow downarrow updownarrow Uparrow
    Downarrow mapsto longmapsto longleftarrow longrightarrow Longleftarrow Longrightarrow longleftrightarrow
    Longleftrightarrow iff implies impliedby hookleftarrow hookrightarrow nearrow searrow swarrow nwarrow leadsto
    rightharpoonup rightharpoondown leftharpoonup leftharpoondown rightleftharpoons xrightarrow xleftarrow rightsquigarrow
    ldots cdots vdots ddots dots dotsc dotsb
    left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr langle rangle lfloor rfloor lceil rceil
    lvert rvert lVert rVert vert Vert lbrace rbrace lbrack rbrack backslash
    hat widehat bar overline underline tilde widetilde vec dot ddot dddot acute grave breve check overbrace underbrace
    overrightarrow overleftarrow overleftrightarrow boxed cancel bcancel xcancel substack phantom hphantom vphantom
    mathrm mathbf mathit mathsf mathtt mathbb mathcal mathfrak mathscr boldsymbol bm pmb rm bf it sf tt cal text textbf
    textit textrm textsf texttt mbox displaystyle textstyle scriptstyle scriptscriptstyle
    quad qquad enspace thinspace medspace thickspace negthinspace hfill
    begin end hline cr tag notag nonumber
    """.split()  # noqa: SIM905 - a list reads better without its quotation marks
)
_ENVIRONMENTS = frozenset(
    """
    matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix smallmatrix cases array aligned alignedat align align* gathered gather
    gather* split equation equation* multline multline*
    """.split()  # noqa: SIM905 - a list reads better without its quotation marks
)
# `\\` (a new row) is tried first: letters after `\\` are not the name of a macro.
_MACRO = re.compile(r"\\(\\|[A-Za-z]+)")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s*\{([^{}]*)\}")
# `\\[9999em]` makes a gap of this height. The column format of an `array` can contain lengths and repetitions.
_LENGTH = re.compile(r"\\\\\s*\*?\s*\[|\\begin\s*\{array\}(?!\s*(?:\[[tbc]\]\s*)?\{[lcr|\s]*\})")
_TEX_GROUP = re.compile(r"\\[A-Za-z]+\s*\{[^{}]*\}")
_WORDS = re.compile(r"(?<=\s)[A-Za-z]{2,}(?=\s|$)|->|=>|[A-Za-z]: |[\u20ac\u00a3\u00a5\u20b9]")


def _is_plain_notation(tex: str) -> bool:
    """Return True if all macros of a formula only draw symbols, and if the formula is neither too long nor nested too deep."""
    if len(tex) > LONGEST_FORMULA or "%" in tex.replace("\\%", "") or "$" in tex.replace("\\$", ""):
        return False
    if _LENGTH.search(tex) or tex.count("\\\\") > _MOST_ROWS:
        return False
    depth = 0
    for char in tex:
        depth += (char == "{") - (char == "}")
        if depth > _DEEPEST:
            return False
    all_known = all(name in _NOTATION or name == "\\" for name in _MACRO.findall(tex))
    blocks = _ENVIRONMENT.findall(tex)
    complete = len(blocks) == len(re.findall(r"\\(?:begin|end)(?![A-Za-z])", tex))
    return all_known and complete and _ENVIRONMENTS.issuperset(blocks)


def _make_formula(tex: str, *, display: bool, typeset: bool) -> str:
    """Return the HTML of a formula, with delimiters for MathJax. If the formula must not be typeset, return it as code."""
    tex = tex.strip()
    shown = mark_hidden_in_prose(tex)
    if typeset and shown == tex and _is_plain_notation(tex):
        opener, closer = ("\\[", "\\]") if display else ("\\(", "\\)")
        return f'<span class="mathjax_process tex2jax_process">{opener}{html.escape(tex)}{closer}</span>'
    return f"<code>{esc(tex)}</code>"


_TYPESET = re.compile(r'<span class="mathjax_process tex2jax_process">\\[(\[](.*?)\\[)\]]</span>', re.DOTALL)


def show_formulas_as_source(page: str) -> str:
    """Return `page`, HTML of this package, with each formula as source code. An exported page has no MathJax."""
    return _TYPESET.sub(r"<code>\1</code>", page)


def _is_money(content: str) -> bool:
    """Return True if the text between two `$` signs is an amount and words, for example "$5 (= €4) or 6 US$"."""
    has_words = _WORDS.search(_TEX_GROUP.sub("", content)) is not None
    return content.startswith("$") or (content[0].isdigit() and has_words)


_FORMULAS = {
    opener: re.compile(pattern.replace("TEX", f"{{1,{LONGEST_FORMULA}}}?"), re.DOTALL)
    for opener, pattern in {
        "$$": r"(?<!\$)\$\$(.TEX)\$\$",
        "$": r"(?<![^\W_])(?<!\$)\$(?![\s$])((?:\\.|[^$\\])TEX)(?<!\s)\$(?![^\W_]|\$)",
        "\\(": r"\\\((.TEX)\\\)",
        "\\[": r"\\\[(.TEX)\\\]",
    }.items()
}


def _read_inline(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - markdown-it passes it by position
    for opener, pattern in _FORMULAS.items():
        match = pattern.match(state.src, state.pos)
        if match is None or not (tex := match[1].strip()):
            continue
        after = state.src[match.end() : match.end() + 1]
        is_shell = opener == "$" and tex[0] in "{(" and after == tex[0]  # ${A}:${B}, $(a)/$(b)
        if is_shell or (opener[0] == "$" and _is_money(tex)):
            return False
        if not silent:
            token = state.push("math", "", 0)
            token.content = match[1]
            token.meta = {"display": opener in ("$$", "\\[")}
        state.pos = match.end()
        return True
    return False


_WHOLE_LINES = re.compile(r"\$\$(.+?)\$\$[ \t]*$|\\\[(.+?)\\\][ \t]*$", re.DOTALL | re.MULTILINE)


def _read_block(state: StateBlock, startLine: int, endLine: int, silent: bool) -> bool:  # noqa: N803, FBT001 - markdown-it calls it so
    """Read a formula that fills whole lines. This rule runs before the rule for lists, because such lines may look like a list."""
    is_code = state.sCount[startLine] - state.blkIndent >= 4
    if is_code or not state.src.startswith(("$$", "\\["), state.bMarks[startLine] + state.tShift[startLine]):
        return False
    lines = state.getLines(startLine, min(endLine, startLine + _MOST_ROWS), state.blkIndent, False)
    match = _WHOLE_LINES.match(lines.lstrip())
    tex = match[match.lastindex or 0] if match else ""
    if match is None or not tex.strip() or (match.lastindex == 1 and _is_money(tex.strip())):
        return False
    if match[0].rstrip()[-2:] in tex:  # the text has more than one formula: `_read_inline` reads them
        return False
    end = startLine + match[0].count("\n") + 1
    if any(state.isEmpty(at) or state.sCount[at] < state.blkIndent for at in range(startLine + 1, end)):
        return False
    if not silent:
        token = state.push("math", "", 0)
        token.block, token.content, token.meta, token.map = True, tex, {"display": True}, [startLine, end]
    state.line = end
    return True


# --- code in colour: Pygments' tokens as a few classes that `style` gives a light and a dark colour ---

# Longer code, and code with a longer line, stays in one colour. The time of some lexers grows with the square of a line's length.
LONGEST_CODE, _LONGEST_LINE = 20_000, 1_000

# Only these languages are highlighted, because the model chooses the name of the language. For an unknown name, Pygments would
# search all installed plugins. And some of its five hundred lexers need a very long time for a hostile text.
_KNOWN = frozenset(
    """
    python py python3 py3 pycon json bash sh shell zsh console yaml toml ini cfg sql postgresql javascript js typescript ts
    html xml css diff c cpp c++ java go golang rust rs r julia ruby rb dockerfile docker make makefile tex latex
    """.split()  # noqa: SIM905 - a list reads better without its quotation marks
)
_CLASSES = {
    **dict.fromkeys(["k", "ow", "nt"], "tk"),
    **dict.fromkeys(["nf", "nc", "nd", "fm", "gh", "gu"], "tf"),
    **dict.fromkeys(["nb", "bp", "na", "ne"], "tb"),
    "c": "tc",
    "s": "ts",
    "m": "tm",
    "gi": "ti",
    "gd": "td",
}
"""The short name of a Pygments token, or its first letters -> the CSS class of this package."""


@cache
def _find_class(token: Any) -> str:
    from pygments.token import STANDARD_TYPES

    while token not in STANDARD_TYPES:
        token = token.parent
    name = STANDARD_TYPES[token]
    return _CLASSES.get(name) or _CLASSES.get(name[:2]) or _CLASSES.get(name[:1], "")


def highlight(code: str, language: str = "") -> str:
    """Return `code` as escaped HTML, to be put into a `<pre>`. If `language` is in `_KNOWN`, the code gets colours."""
    name = language.strip().lower()
    if name not in _KNOWN or len(code) > LONGEST_CODE or max(map(len, code.split("\n"))) > _LONGEST_LINE:
        return esc(code)
    from pygments.lexers import get_lexer_by_name

    tokens = list(get_lexer_by_name(name, stripnl=False, ensurenl=True).get_tokens(code))
    if tokens and not code.endswith("\n"):  # Pygments has added a newline for the lexer
        tokens[-1] = (tokens[-1][0], tokens[-1][1].removesuffix("\n"))
    parts = []
    for css, run in groupby(tokens, lambda token: _find_class(token[0])):
        text = esc("".join(text for _, text in run))
        parts.append(f'<span class="{css}">{text}</span>' if css and text else text)
    return "".join(parts)
