"""
`NamedTuple` without `typing`; the package's docstring says why and how to use it.

It behaves like the real one as far as this library goes: fields in order, defaults, keywords, `_fields`,
`_replace`, `_asdict`, `_make`, `repr`, pickling, pattern matching, methods and properties.
"""

from __future__ import annotations

from _collections import _tuplegetter  # type: ignore[import-not-found]  # What `collections.namedtuple` uses.

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


FEW_VALUES = 50


class _Maker(type):
    """Turns a class body with annotations into a tuple with named fields."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], body: dict[str, Any], *, is_root: bool = False
    ) -> type:
        if is_root:
            return type.__new__(mcs, name, bases, body)
        fields = tuple(body.get("__annotations__", ()))
        defaults = tuple(body.pop(field) for field in fields if field in body)
        members = {
            **body,
            **{field: _tuplegetter(at, "") for at, field in enumerate(fields)},
            "__slots__": (),
            "__new__": _until_needed(name, fields, defaults),
            "__repr__": body.get("__repr__", _repr),
            "__getnewargs__": _arguments,
            "__match_args__": fields,
            "_fields": fields,
            "_field_defaults": dict(zip(fields[len(fields) - len(defaults) :], defaults, strict=True)),
            "_replace": _replace,
            "_asdict": _asdict,
            "_make": classmethod(tuple.__new__),
        }
        return type(name, (tuple,), members)


def _until_needed(name: str, fields: tuple[str, ...], defaults: tuple[Any, ...]) -> Any:
    """Make the constructor when it pays, which takes as long as to make fifty values without it."""
    new, default_of, calls = tuple.__new__, dict(zip(reversed(fields), reversed(defaults), strict=False)), 0

    def __new__(cls: Any, /, *given: Any, **named: Any) -> Any:  # noqa: N807
        nonlocal calls
        calls += 1
        if calls < FEW_VALUES:
            values, rest = list(given), dict(named)
            for field in fields[len(given) :]:
                if field not in rest and field not in default_of:
                    break  # The interpreter shall complain.
                values.append(rest.pop(field) if field in rest else default_of[field])
            if len(values) == len(fields) and not rest:
                return new(cls, values)
        made = _constructor(name, fields, defaults)
        cls.__new__ = staticmethod(made)
        return made(cls, *given, **named)

    return __new__


def _constructor(name: str, fields: tuple[str, ...], defaults: tuple[Any, ...]) -> Any:
    # Made from text, so that the interpreter itself binds arguments and complains about wrong ones.
    arguments = ", ".join(fields)
    comma = "," if len(fields) == 1 else ""
    made = eval(  # noqa: S307 - field names are identifiers of this library's own source
        f"lambda _cls, {arguments}: _new(_cls, ({arguments}{comma}))", {"_new": tuple.__new__}
    )
    made.__defaults__ = defaults
    made.__name__, made.__qualname__ = "__new__", f"{name}.__new__"
    return made


def _repr(self: Any) -> str:
    pairs = ", ".join(f"{field}={value!r}" for field, value in zip(self._fields, self, strict=True))
    return f"{type(self).__name__}({pairs})"


def _arguments(self: Any) -> tuple[Any, ...]:
    return tuple(self)  # For pickle and copy.


def _asdict(self: Any) -> dict[str, Any]:
    return dict(zip(self._fields, self, strict=True))


def _replace(self: Any, /, **changes: Any) -> Any:
    values = map(changes.pop, self._fields, self)
    made = tuple.__new__(type(self), values)
    if changes:
        raise ValueError(f"{type(self).__name__} has no field {next(iter(changes))!r}")
    return made


class NamedTuple(metaclass=_Maker, is_root=True):
    """Base of values with named fields; see the top."""
