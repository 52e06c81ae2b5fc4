"""The rules: each looks at one step and what came before it, and says what is wrong and which numbers show it."""

from inspector.diagnosis.rules.rule import NOTHING, Rule, Seen, multi_index, the_same_in
from inspector.diagnosis.rules.table import HELD, RULE_NAMES, RULES, RULES_BY_NAME

__all__ = [
    "HELD",
    "NOTHING",
    "RULES",
    "RULES_BY_NAME",
    "RULE_NAMES",
    "Rule",
    "Seen",
    "multi_index",
    "the_same_in",
]
