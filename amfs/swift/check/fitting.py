"""Which value may stand where, and which of several functions a call means. Must not know: names, trees of statements."""

from __future__ import annotations

from amfs.swift.tree import ArrayLiteral, Convert, Expression, Literal, Range
from amfs.swift.types import ANY, AUTO, EXTERNAL, FLOAT, INT, VOID, Array, Bag, Parameter, Struct, Subtype, Type, Union

#: Costs of a fit: of several functions the one that costs least is meant.
EXACT, SUBTYPE, UNION, PROMOTION, WHATEVER = 0, 1, 1, 10, 30

Bindings = dict[str, Type]


def fit(actual: Type, wanted: Type, bound: Bindings, promote: bool = True) -> int | None:
    """The cost to give an ``actual`` where a ``wanted`` is expected; None: impossible. ``bound``: meanings of type parameters so
    far, filled in. ``promote``: int may become float; within arrays it may not."""
    if actual == wanted:
        return EXACT
    if isinstance(wanted, Parameter):
        known = bound.get(wanted.name)
        if known is None or known == ANY:
            bound[wanted.name] = actual
            return EXACT
        if known == INT and actual == FLOAT and promote:
            bound[wanted.name] = FLOAT
            return PROMOTION
        return fit(actual, known, bound, promote)
    if wanted == ANY or actual == ANY:
        return WHATEVER
    if isinstance(wanted, Union):
        costs = [cost for one in wanted.types if (cost := fit(actual, one, bound, False)) is not None]
        if not costs and promote:
            costs = [cost for one in wanted.types if (cost := fit(actual, one, bound, True)) is not None]
        return UNION + min(costs) if costs else None
    if isinstance(actual, Union):
        costs = [cost for one in actual.types if (cost := fit(one, wanted, bound, promote)) is not None]
        return max(costs) if len(costs) == len(actual.types) else None
    if isinstance(wanted, Array):
        if not isinstance(actual, Array):
            return fit(actual.base, wanted, bound, promote) if isinstance(actual, Subtype) else None
        numbered = {actual.key, wanted.key} == {AUTO, INT}
        if actual.key not in (wanted.key, ANY) and not numbered and not isinstance(wanted.key, Parameter) and wanted.key != ANY:
            return None
        if isinstance(wanted.key, Parameter) and fit(actual.key, wanted.key, bound, False) is None:
            return None
        return fit(actual.element, wanted.element, bound, False)
    if isinstance(wanted, Bag):
        return fit(actual.element, wanted.element, bound, False) if isinstance(actual, Bag) else None
    if actual == INT and wanted == FLOAT:
        return PROMOTION if promote else None
    if isinstance(actual, Subtype):
        cost = fit(actual.base, wanted, bound, promote)
        return None if cost is None else cost + SUBTYPE
    if actual == EXTERNAL and wanted == VOID:
        return SUBTYPE
    if isinstance(actual, Struct) and isinstance(wanted, Struct):
        return EXACT if actual.name == wanted.name else None
    return None


def fit_node(node: Expression, wanted: Type, bound: Bindings) -> int | None:
    """As ``fit``, and the items of an array that is written out may be promoted."""
    assert node.type is not None
    cost = fit(node.type, wanted, bound)
    if cost is not None or not isinstance(wanted, Array) or not isinstance(node.type, Array):
        return cost
    if isinstance(node, Range) and node.type == Array(INT) and wanted == Array(FLOAT):
        return PROMOTION
    if not isinstance(node, ArrayLiteral) or node.type.key != wanted.key:
        return None
    costs = [fit_node(item, wanted.element, bound) for item in node.items]
    return None if None in costs else max((cost for cost in costs if cost is not None), default=EXACT)


def converted(node: Expression, wanted: Type) -> Expression:
    """The node, or a conversion of it to ``wanted``. It must fit."""
    if node.type == INT and wanted == FLOAT:
        if isinstance(node, Literal):
            made: Expression = Literal(node.at, float(node.value))
        else:
            made = Convert(node.at, node)
        made.type = FLOAT
        return made
    if isinstance(wanted, Array) and isinstance(node.type, Array):
        if isinstance(node, ArrayLiteral):
            node.items = [converted(item, wanted.element) for item in node.items]
            node.type = Array(wanted.element if wanted.element != ANY else node.type.element, node.type.key)
        elif isinstance(node, Range) and wanted.element == FLOAT and node.type.element == INT:
            node.first, node.last = converted(node.first, FLOAT), converted(node.last, FLOAT)
            node.step = None if node.step is None else converted(node.step, FLOAT)
            node.type = Array(FLOAT)
    return node


def common(types: list[Type]) -> Type | None:
    """The type of an array with such items; None: they do not go together."""
    found: Type = types[0] if types else ANY
    for one in types[1:]:
        if one in (found, ANY):
            continue
        if found == ANY or fit(found, one, {}) is not None:
            found = one
        elif fit(one, found, {}) is None:
            return None
    return found


def substituted(type: Type, bound: Bindings) -> Type:
    """Type parameters replaced by what they stand for."""
    if isinstance(type, Parameter):
        return bound.get(type.name, ANY)
    if isinstance(type, Array):
        return Array(substituted(type.element, bound), substituted(type.key, bound))
    if isinstance(type, Bag):
        return Bag(substituted(type.element, bound))
    return type
