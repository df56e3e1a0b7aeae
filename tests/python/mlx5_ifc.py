"""The structs of the kernel's mlx5_ifc.h, parsed: every u8 in them stands for a bit.

A field is `u8 name[width]`, `u8 name[count][width]` or a struct or union of the same kind, whose array may be of
unknown length at the end. Fields of structs and unions without a name belong to what they are in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Member:
    name: str
    offset: int  # bits
    width: int  # bits, of one
    count: int = 0  # of an array; 0 if it is none
    tail: bool = False  # an array of unknown length
    struct: str = ""  # what each is, if it is not a number
    union: str = ""  # of the same


@dataclass
class Struct:
    name: str
    bits: int = 0
    members: dict[str, Member] = field(default_factory=dict)


_TOKENS = re.compile(r"\w+|[{}\[\];]")
_NUMBER = re.compile(r"(?:0[xX])?[0-9a-fA-F]+$")


class Structs(dict[str, Struct]):
    """Every struct and union of a text, by its name without mlx5_ifc_ and _bits."""

    def __init__(self, text: str) -> None:
        super().__init__()
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"DECLARE_FLEX_ARRAY\((struct \w+), (\w+)\)", r"\1 \2[]", text)
        self._unions: set[str] = set()
        self._bodies: dict[str, list[str]] = {}
        kinds = re.findall(r"^(struct|union) mlx5_ifc_(\w+?)(?:_bits)? \{\n(.*?)^\};", text, re.M | re.S)
        for kind, name, body in kinds:
            self._bodies[name] = _TOKENS.findall(body)
            if kind == "union":
                self._unions.add(name)

    def __missing__(self, name: str) -> Struct:
        """Parsed when asked for. KeyError if there is none."""
        tokens = list(self._bodies[name])
        found = self[name] = Struct(name)
        found.bits = self._body(tokens, found, 0, union=name in self._unions)
        assert not tokens, name
        return found

    def _body(self, tokens: list[str], into: Struct, offset: int, *, union: bool) -> int:
        """Takes the members up to the closing brace; returns how many bits they are."""
        start = end = offset
        while tokens and tokens[0] != "}":
            at = start if union else end
            end = max(end, at + self._member(tokens, into, at)) if union else at + self._member(tokens, into, at)
        return end - start

    def _member(self, tokens: list[str], into: Struct, offset: int) -> int:
        kind = tokens.pop(0)
        if kind == "u8":
            name, numbers, tail = self._declared(tokens)
            width = numbers.pop()
            assert len(numbers) <= 1, name
            return self._add(into, Member(name, offset, width, numbers[0] if numbers else 0, tail))
        assert kind in ("struct", "union"), (into.name, kind)
        if tokens[0] == "{":
            tokens.pop(0)
            if self._named(tokens):
                inner = Struct("")
                bits = self._body(tokens, inner, 0, union=kind == "union")
                assert tokens.pop(0) == "}"
                name, numbers, tail = self._declared(tokens)
                return self._add(into, Member(name, offset, bits, *numbers, tail=tail, union="anonymous"))
            bits = self._body(tokens, into, offset, union=kind == "union")
            assert tokens.pop(0) == "}"
            assert tokens.pop(0) == ";"
            return bits
        called = tokens.pop(0).removeprefix("mlx5_ifc_").removesuffix("_bits")
        name, numbers, tail = self._declared(tokens)
        where = {"union": called} if kind == "union" else {"struct": called}
        return self._add(into, Member(name, offset, self[called].bits, *numbers, tail=tail, **where))

    @staticmethod
    def _named(tokens: list[str]) -> bool:
        """Whether the braces that were just opened are closed with a name behind."""
        depth = 1
        for at, token in enumerate(tokens):
            depth += (token == "{") - (token == "}")
            if not depth:
                return tokens[at + 1] != ";"
        raise AssertionError("a brace is not closed")

    @staticmethod
    def _declared(tokens: list[str]) -> tuple[str, list[int], bool]:
        name = tokens.pop(0)
        numbers: list[int] = []
        tail = False
        while (token := tokens.pop(0)) != ";":
            assert token == "[", (name, token)
            inside = tokens.pop(0)
            if inside == "]":
                tail = True
                continue
            assert _NUMBER.match(inside), (name, inside)
            if int(inside, 0):
                numbers.append(int(inside, 0))
            else:
                tail = True  # as [0] says it too
            assert tokens.pop(0) == "]"
        return name, numbers, tail

    @staticmethod
    def _add(into: Struct, member: Member) -> int:
        assert member.name not in into.members or member.name.startswith("reserved"), (into.name, member.name)
        into.members[member.name] = member
        return 0 if member.tail else member.width * (member.count or 1)


def enumerators(text: str) -> dict[str, int]:
    """Every enumerator of a header's text, whose values are numbers or expressions over others before it."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", re.sub(r"\\\n", " ", text), flags=re.S)
    known: dict[str, int] = {}
    scope = {"__builtins__": {}, "BIT": lambda n: 1 << n, "BIT_ULL": lambda n: 1 << n}
    for body in re.findall(r"^enum\s*\w*\s*\{(.*?)^\}", text, re.M | re.S):
        following: int | None = 0
        for item in re.split(r",(?![^()]*\))", body):
            name, _, expression = (part.strip() for part in item.partition("="))
            if not re.fullmatch(r"\w+", name):
                continue
            if expression:
                try:
                    following = int(eval(re.sub(r"(?<=[0-9a-fA-F])U?L*\b", "", expression), scope, known))
                except (NameError, SyntaxError, TypeError):
                    following = None  # of a header that is not here
            if following is not None:
                known[name] = following
                following += 1
    return known
