"""Alternatives of a pattern on typed Columns, objects and arrays included: the meaning of `matches_fields` as Columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf

from headrace.core.matching.patterns.fields import FieldTree
from headrace.core.matching.patterns.operators import Leaf, Path
from headrace.replay.pattern_columns.bounds import NEVER, UNKNOWN, Bounds, all_elements, any_element, both, either, exact
from headrace.replay.pattern_columns.column_types import Kind, kind_of, plain_type
from headrace.replay.pattern_columns.plain_values import matches_null, matches_plain

Columns: TypeAlias = Mapping[str, tuple[Column, pa.DataType]]
"""The columns of a history, or the fields of one of its objects, by name."""


def matches_alternative(fields: Iterable[tuple[Path, Leaf]], columns: Columns) -> Bounds:
    """Return the condition that a row matches all fields of an alternative."""
    return _matches_object(FieldTree.of(fields), columns)


def fields_of(column: Column, its_type: pa.DataType) -> Columns:
    """Return the fields of an object. A name that two fields have is left out, as Spark cannot read it."""
    its_type = plain_type(its_type)
    names = [field.name for field in its_type]
    return {field.name: (column.getField(field.name), field.type) for field in its_type if names.count(field.name) == 1}


def _matches_object(tree: FieldTree, columns: Columns) -> Bounds:
    leaves = [_matches_leaf(leaf, *columns[name]) if name in columns else exact(leaf.absent) for name, leaf in tree.leaves.items()]
    trees = [_matches_tree(inner, *columns[name]) if name in columns else exact(inner.absent) for name, inner in tree.trees.items()]
    return both(*leaves, *trees)


def _matches_tree(tree: FieldTree, column: Column, its_type: pa.DataType) -> Bounds:
    kind = kind_of(its_type)
    if kind is Kind.UNKNOWN:
        return UNKNOWN
    if kind is Kind.OBJECT:
        inner = _matches_object(tree, fields_of(column, its_type))
        return either(exact(column.isNull()), inner) if tree.absent else both(exact(column.isNotNull()), inner)
    if kind is not Kind.ARRAY:
        return exact(tree.absent)
    element = plain_type(its_type).value_type
    if tree.absent:
        return either(exact(column.isNull()), all_elements(column, lambda each: _matches_tree(tree, each, element)))
    return any_element(column, lambda each: _matches_tree(tree, each, element))


def _matches_leaf(leaf: Leaf, column: Column, its_type: pa.DataType) -> Bounds:
    kind = kind_of(its_type)
    if kind is Kind.OBJECT:
        return exact(column.isNotNull()) if leaf.absent else _null(leaf, column)
    if kind is not Kind.ARRAY:
        return matches_plain(leaf, column, its_type)
    element = plain_type(its_type).value_type
    if leaf.absent:
        return both(exact(column.isNotNull()), _has_only_objects(column, element))
    return either(any_element(column, lambda each: _matches_leaf(leaf, each, element)), _null(leaf, column))


def _has_only_objects(array: Column, element: pa.DataType) -> Bounds:
    kind = kind_of(element)
    if kind is Kind.ARRAY:
        inner = plain_type(element).value_type
        return all_elements(array, lambda each: both(exact(each.isNotNull()), _has_only_objects(each, inner)))
    if kind is Kind.OBJECT:
        return all_elements(array, lambda each: exact(each.isNotNull()))
    return exact(sf.size(array) == 0)


def _null(leaf: Leaf, column: Column) -> Bounds:
    """Return the condition that a null matches where an object or array could be."""
    return exact(column.isNull()) if matches_null(leaf) else NEVER
