"""Patterns of a suite that can't run: regular expressions, which are Java's in Spark, and LIKE patterns."""

from __future__ import annotations

import re
import warnings

_QUANTIFIER = re.compile(r"\{\d{1,9}(?:,\d{0,9})?\}")
_BRACED = re.compile(r"\\(?:[pPN]\{[A-Za-z][^{}]*\}|x\{[0-9A-Fa-f]+\}|c.)", re.DOTALL)
_AGAIN = re.compile(r"\\k<([A-Za-z][A-Za-z0-9]*)>")
_QUOTED = re.compile(r"\\Q.*?(?:\\E|$)", re.DOTALL)
_NOTHING = ("\\Q\\E", "\\Q")
_OPENED = re.compile(r"\[\^?\]?")
_PLAIN_CLASS = re.compile(r"\[\^?\]?(?:\\(?!Q).|[^\]\\\[&])*\]", re.DOTALL)
_FLAGS = re.compile(r"\(\?([A-Za-z-]*)([:)])")
_GROUP = re.compile(r"\(\?<([^=!>]*)>")
_REPEATS = ("*", "+", "?")
_JAVA_FLAGS = frozenset("idmsuxU-")
_JAVA_ESCAPES = frozenset("hHRXzGVe")
"""What Java escapes and Python does not."""
_JAVA_REFUSES = frozenset("CEFIJKLMOPTYgijlmoqy")
"""Letters that mean nothing after a backslash in Java, or mean more than the letter."""
_NOT_IN_CLASSES = tuple("ABGRXZbkz123456789")
"""What after a backslash names a place, a group or more than one character."""
_OCTAL = tuple("01234567")
_PYTHON_ONLY = ("(?P", "(?(", "(?#")


def regex_problem(pattern: str) -> str | None:
    """What is wrong with a regular expression; None when Java compiles it, as far as can be told without a JVM.

    It is read by Java's rules where they differ from Python's, and what both share is left to Python to compile.
    Whether what looks behind has an end is not told, nor whether a class of characters in braces has a name of Java's.
    """
    shared, at, depth = [], 0, 0
    while at < len(pattern):
        piece, problem, step = _piece(pattern, at, depth)
        if problem:
            return problem
        shared.append(piece)
        at, depth = at + len(step), depth + _deeper(step, depth)
    if depth:
        return "a `[` has no `]`"
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile("".join(shared))
    except (re.error, RecursionError, OverflowError) as exc:
        # Java looks behind over more than one length, where it is bounded.
        return None if "look-behind" in str(exc) else str(exc)
    return None


def like_problem(pattern: str, escape: str) -> str | None:
    """What is wrong with a LIKE pattern; None when Spark can run it."""
    at = 0
    while at < len(pattern):
        if pattern[at] == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in {"%", "_", escape}:
                return (
                    f"`{escape}` stands before an ordinary character: write `{escape}{escape}`, or choose an `escape`"
                )
        at += 1
    return None


def _piece(pattern: str, at: int, depth: int) -> tuple[str, str | None, str]:
    """What Python reads in the place of a piece of a Java pattern; what is wrong with it; the piece itself."""
    if pattern[at] == "\\":
        return _escape(pattern, at, in_class=depth > 0)
    if depth:
        # Classes may hold classes in Java: the outermost one becomes a character.
        opened = _OPENED.match(pattern, at)
        return "", None, opened[0] if opened else pattern[at]
    if pattern[at] == "[":
        plain = _PLAIN_CLASS.match(pattern, at)
        opened = _OPENED.match(pattern, at)
        return _plain_class(plain[0]) if plain else ("x", None, opened[0] if opened else "[")
    if pattern[at] == "{":
        found = _QUANTIFIER.match(pattern, at)
        return (found[0], None, found[0]) if found else ("", "a `{` is no quantifier: write `\\{`", "{")
    if pattern[at] == "(":
        return _opening(pattern, at)
    return pattern[at], None, pattern[at]


def _plain_class(text: str) -> tuple[str, str | None, str]:
    """A class without classes in it, and without intersections: Python reads it alike but for some escapes."""
    shared, at = [], 0
    while at < len(text):
        if text[at] == "\\":
            piece, problem, step = _escape(text, at, in_class=True)
            if problem:
                return "", problem, text
            shared.append(piece)
            at += len(step)
        else:
            shared.append(text[at])
            at += 1
    return "".join(shared), None, text


def _escape(pattern: str, at: int, *, in_class: bool) -> tuple[str, str | None, str]:
    if in_class and pattern[at + 1 : at + 2] in _NOT_IN_CLASSES:
        step = pattern[at : at + 2]
        return "", f"`{step}` means nothing between `[` and `]`", step
    again = _AGAIN.match(pattern, at)
    if again:
        return f"(?P={again[1]})", None, again[0]
    found = _QUOTED.match(pattern, at) or _BRACED.match(pattern, at)
    if found:
        return ("" if found[0] in _NOTHING else "x"), None, found[0]
    step = pattern[at : at + 2]
    if len(step) < 2:
        return "", "it ends with a backslash", step
    if step[1] in _JAVA_REFUSES or (step[1] == "0" and pattern[at + 2 : at + 3] not in _OCTAL):
        return "", f"Java does not know `{step}`", step
    return ("x" if step[1] in _JAVA_ESCAPES else step), None, step


def _opening(pattern: str, at: int) -> tuple[str, str | None, str]:
    for foreign in _PYTHON_ONLY:
        if pattern.startswith(foreign, at):
            return "", f"Java does not know `{foreign}`: its groups are `(?<name>...)`", foreign
    named = _GROUP.match(pattern, at)
    if named:
        problem = None if re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", named[1]) else f"`{named[1]}` can't be a group's name"
        return f"(?P<{named[1]}>", problem, named[0]
    flags = _FLAGS.match(pattern, at)
    if flags:
        problem = None if set(flags[1]) <= _JAVA_FLAGS else f"Java does not know the flags `{flags[1]}`"
        if flags[2] == ")" and pattern[flags.end() : flags.end() + 1] in _REPEATS:
            problem = f"after `{flags[0]}` there is nothing to repeat"
        return ("(?:" if flags[2] == ":" else ""), problem, flags[0]
    return "(", None, "("


def _deeper(step: str, depth: int) -> int:
    if step.startswith("[") and not (len(step) > 2 and step.endswith("]") and step != "[^]"):
        return 1
    return -1 if step == "]" and depth else 0
