"""Chemical programs: a solution of molecules, and rules that rewrite it until nothing reacts.

The paper's model (its section 2) is in three files: `molecules` is what floats in a solution, and
what rules are made of; `matching` finds molecules for a rule, `reactor` lets them react. Around
them, `lexer`, `parser` and `printer` are the notation, read and written, and `arithmetic` says what
expressions come to; `formulas` are conditions alone, for what has nothing to do with chemistry.

Pure: no files, no clock; whoever runs a program brings the random numbers. This room imports no
other; every other may import it.
"""

from sureline.chemistry.mistakes import ChemistryError, TextPlace
from sureline.chemistry.molecules import Molecule, Rule, Solution, Symbol
from sureline.chemistry.parser import (
    Program,
    parse_molecules,
    parse_placed,
    parse_program,
    parse_rules,
)
from sureline.chemistry.printer import show, show_program
from sureline.chemistry.reactor import Bounds, Reaction, Reactor

__all__ = [
    "Bounds",
    "ChemistryError",
    "Molecule",
    "TextPlace",
    "Program",
    "Reaction",
    "Reactor",
    "Rule",
    "Solution",
    "Symbol",
    "parse_molecules",
    "parse_placed",
    "parse_program",
    "parse_rules",
    "show",
    "show_program",
]
