"""Expressions over values: types kept, texts rendered, conditions as one expression, nothing unbounded."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interpreter.errors import ExpressionError, LimitExceeded, TemplateError, UndefinedName
from interpreter.expressions import (
    Dialect,
    Limits,
    Templates,
    condition_names,
    expression_function,
    free_names,
)
from interpreter.expressions.context import NOT_FOUND
from interpreter.plan import Call, Graph, Plan
from interpreter.walker import MISSING, Program, Walk, apply
from interpreter.walker.records import Started

STRICT, LENIENT = Dialect(), Dialect(strict=False)
NAMES = {
    "n": 11,
    "s": "approved",
    "flag": True,
    "none": None,
    "data": {"score": 0.9, "items": [{"id": 1}, {"id": 2}], "get": "shadow"},
    "user": {"name": "Ann"},
    "quote": "' or true or '",
}


def evaluate(source, form="value", dialect=STRICT, names=NAMES):
    return dialect.compile(source, form).evaluate(lambda name: names.get(name, NOT_FOUND), lambda: names)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{{ n }}", 11),
        ("  {{ n }}\n", 11),
        ("{{ data.score }}", 0.9),
        ("{{ data.items }}", [{"id": 1}, {"id": 2}]),
        ("{{ data['items'][1].id }}", 2),
        ("{{ data.items[-1].id }}", 2),
        ("{{ flag }}", True),
        ("{{ null }}", None),
        ("{{ None }}", None),
        ("{{ [n, s] }}", [11, "approved"]),
        ("{{ {'a': n} }}", {"a": 11}),
        ("{{ range(3) }}", [0, 1, 2]),
        ("{{ (1, 2) }}", [1, 2]),
        ("{{ data.items | map(attribute='id') | list }}", [1, 2]),
        ("{{ data.items | map(attribute='id') }}", [1, 2]),
        ("{{ user.items() }}", [["name", "Ann"]]),
        ("{{ data.items | length + 1 }}", 3),
        ("{{ n if flag else 0 }}", 11),
        ("{{ nobody | default('x') }}", "x"),
        ("{{ nobody is defined }}", False),
        ("{{ n is not None }}", True),
        ("{{ s.upper() }}", "APPROVED"),
        ("{{ 2 ** 10 }}", 1024),
        ("{{ sorted([3, 1, 2]) }}", [1, 2, 3]),
        ("{{ enumerate(['a']) }}", [[0, "a"]]),
        ("{{ '[1, 2]' | fromjson }}", [1, 2]),
    ],
)
def test_a_whole_expression_keeps_its_type(source, value):
    """A text that is one expression gives the value itself, as JSON knows it."""
    actual = evaluate(source)
    assert actual == value
    assert type(actual) is type(value)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("n={{ n }}", "n=11"),
        ("{{ n }}{{ n }}", "1111"),
        ("{{ user }} there", '{"name": "Ann"} there'),
        ("{% if flag %}yes{% else %}no{% endif %}", "yes"),
        ("{% for i in data.items %}{{ i.id }},{% endfor %}", "1,2,"),
        ("{{ s ~ n }}", "approved11"),
        ("{{ user | tojson }}!", '{"name": "Ann"}!'),
        ("{{ '<b>' | tojson }}", '"<b>"'),
        ("{{ [1, s] | join('-') }}", "1-approved"),
        ("no template", "no template"),
    ],
)
def test_any_other_text_renders_to_text(source, text):
    """Templates inside a text become text; structures are written as JSON."""
    assert evaluate(source) == text


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("{{data.score}} > 0.8", True),
        ("{{ data.score }} > 0.8 and {{n}} < 10", False),
        ("n > 10", True),
        ("{{s}} == 'approved'", True),
        ("'{{s}}' == 'approved'", True),
        ('"{{s}}-{{n}}" == "approved-11"', True),
        ("'{{n}}' == 11", False),
        ("{{n}} == 11", True),
        ("{{flag}} == true and not false", True),
        ("{{none}} == null", True),
        ("{{quote}} == 'x'", False),
        ("'{{quote}}' == 'x'", False),
        ("'a' in ['a', 'b']", True),
        ("{{ n > 10 }}", True),
        ("True", True),
        ("'it\\'s' == \"it's\"", True),
    ],
)
def test_a_condition_is_one_expression_over_values(condition, holds):
    """Bare names, templates and quoted templates mix; a value is never read as code."""
    assert evaluate(condition, "condition") is holds


@pytest.mark.parametrize("source", ["{{ a", "{{ a) or (b }} > 1", "{{ }} > 1", "n >", "n > 1 2", "_hole_0 > 1"])
def test_what_does_not_parse_is_refused_when_compiled(source):
    """A broken expression is the author's fault and is found before anything runs."""
    with pytest.raises(TemplateError):
        STRICT.compile(source, "condition")


@pytest.mark.parametrize(
    "source",
    [
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% extends 'x' %}",
        "{% macro f() %}{% endmacro %}",
        "{% block b %}{% endblock %}",
        "{% for i in [1] recursive %}{% endfor %}",
    ],
)
def test_statements_that_reach_out_or_recurse_are_refused(source):
    """Templates are for values: no files, no macros, no recursion."""
    with pytest.raises(TemplateError, match="not allowed"):
        STRICT.compile(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}",
        "{{ ''['__class__'] }}",
        "{{ nobody.__class__ }}",
        "{{ range.__globals__ }}",
        "{{ [].append(1) }}",
        "{{ user.update({'a': 1}) }}",
        "{{ user.pop('name') }}",
        "{{ s.format(1) }}",
        "{{ '%s' % s }}",
        "{{ s | attr('upper') }}",
        "{{ [1] | random }}",
        "{{ cycler('a') }}",
        "{{ lipsum() }}",
        "{{ self }}",
        "{{ s.upper }}",
        "{{ n() }}",
    ],
)
@pytest.mark.parametrize("dialect", [STRICT, LENIENT])
def test_nothing_but_values_can_be_reached(source, dialect):
    """Internals, mutation, chance and formatting are out of reach, strict or not."""
    try:
        value = evaluate(source, dialect=dialect)
    except (ExpressionError, TemplateError):
        return
    # Where undefined names are let pass, what does not exist is null; it is never an object.
    assert dialect is LENIENT
    assert value is None


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10 ** 9 }}",
        "{{ [0] * 10 ** 9 }}",
        "{{ range(10 ** 9) }}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ (2 ** 4000) * (2 ** 4000) }}",
        "{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'a' * 100 }}{% endfor %}",
        "{% set a = 'x' * 1000 %}" + "{% set a = a ~ a %}" * 40,
        "{% set a = 'x' * 1000 %}" + "{% set a = a + a %}" * 40,
        "{% set a = [1] %}" + "{% set a = [a, a] %}" * 40 + "{{ a }}",
        "{% set a = [1] %}" + "{% set a = [a, a] %}" * 40 + "{{ a | tojson }}",
        "{% set a = [1] %}" + "{% set a = [a, a] %}" * 40 + "{{ a | string }}",
        "{{ ('a' * 99999).replace('a', 'b' * 99999) }}",
        "{{ ('a' * 99999) | replace('a', 'b' * 99999) }}",
        "{{ ('a' * 99999).join(['x'] * 99999) }}",
        "{{ (['a' * 999] * 999) * 999 }}",
        "{% for i in range(9999) %}{% set x = [0] * 99999 %}{% endfor %}",
        "{% set x = range(9999) %}{% for i in range(9999) %}{% set y = x | sort %}{% endfor %}",
        "{% set x = range(9999) %}{% for i in range(9999) %}{% set y = sorted(x) %}{% endfor %}",
        "{% for i in range(9999) %}{% set y = range(9999) %}{% endfor %}",
    ],
)
def test_every_evaluation_is_bounded(source):
    """Whatever would grow without bound hits a limit instead, by counting work and not time."""
    with pytest.raises(LimitExceeded):
        evaluate(source)


def test_limits_are_settings():
    """Each cap can be changed."""
    tight = Dialect(limits=Limits(steps=20, size=50, range=5))
    assert evaluate("{{ range(5) }}", dialect=tight) == [0, 1, 2, 3, 4]
    for source in ("{{ range(6) }}", "{{ 'a' * 51 }}", "{% for i in [1] * 21 %}{% endfor %}"):
        with pytest.raises(LimitExceeded):
            evaluate(source, dialect=tight)


def test_an_undefined_name_is_an_error_that_names_the_nearest():
    """The error says which name is missing and which known one is most like it."""
    with pytest.raises(UndefinedName, match=r"'usr' is undefined in .*; did you mean 'user'") as caught:
        evaluate("{{ usr.name }}")
    assert (caught.value.name, caught.value.nearest) == ("usr", "user")
    with pytest.raises(UndefinedName, match=r"'nme' is not there in .*; did you mean 'name'"):
        evaluate("hello {{ user.nme }}")


def test_where_undefined_names_are_let_pass_they_are_null():
    """Lenient: chains of undefined names are null, and nothing in text."""
    assert evaluate("{{ nobody.at.all }}", dialect=LENIENT) is None
    assert evaluate("[{{ nobody.at.all }}]", dialect=LENIENT) == "[]"


def test_errors_keep_their_python_names():
    """What goes wrong on values can be caught by its name."""
    for source, name in (("{{ 1 / (n - 11) }}", "ZeroDivisionError"), ("{{ n + s }}", "TypeError")):
        with pytest.raises(ExpressionError) as caught:
            evaluate(source)
        assert caught.value.type == name


def test_free_names_are_found_without_running():
    """The names a structure needs, without loop variables and functions."""
    expr = {"a": ["{{ x.y + len(z) }}", "{% for i in xs %}{{ i }}{% endfor %}"], "b": 3, "c": "plain"}
    assert free_names(expr) == {"x", "z", "xs"}
    assert condition_names("{{a.b}} > limit and '{{c}}' == 'x'") == {"a", "limit", "c"}
    assert condition_names(True) == frozenset()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(json_values)
def test_a_value_passes_through_unchanged(value):
    """Whatever a name holds, `{{ name }}` is exactly it; a value is never read as a template."""
    assert evaluate("{{ v }}", names={"v": value}) == value
    assert evaluate("{{ [v][0] }}", names={"v": value}) == value
    assert json.loads(evaluate("{{ v | tojson }}", names={"v": value})) == value


@settings(max_examples=200, deadline=None)
@given(st.text(), st.text())
def test_texts_compare_as_values_whatever_they_hold(a, b):
    """No text can break out of a condition: quotes and braces in values are just text."""
    names = {"a": a, "b": b}
    assert evaluate("{{a}} == {{b}}", "condition", names=names) is (a == b)
    assert evaluate("'{{a}}' == {{b}}", "condition", names=names) is (a == b)


class Playbook(Templates):
    """A language of its own: a function over states, and a view that says what can be seen of it."""

    class View:
        exposed = frozenset(("open",))
        open = 1
        closed = 2

    def resolve(self, scope, name):
        if name == "done":
            return expression_function(lambda node: scope.state(node) is not None)
        return self.View() if name == "view" else super().resolve(scope, name)


def scope_of(evaluator, inputs=None):
    made = Plan(name="t", graphs={"main": Graph(nodes=(Call(id="a", target="f"),))})
    walk = Walk(Program(made), evaluator)
    apply(walk, Started(inputs or {}, {"everywhere": 1}))
    return walk.scope("a")


def test_the_evaluator_renders_structures_and_leaves_constants_alone():
    """Only what holds a template is rendered; the rest is the same object."""
    evaluator = Templates()
    scope = scope_of(evaluator, {"x": 1})
    assert evaluator.value({"a": ["{{x}}", "k"], "b": "{{everywhere}}"}, scope) == {"a": [1, "k"], "b": 1}
    constant = {"a": [1, "k"]}
    assert evaluator.value(constant, scope) is constant
    assert scope.lookup("nobody") is MISSING


@pytest.mark.parametrize("word", ["", "false", "False", "0", "no", "none"])
def test_words_that_mean_no(word):
    """A condition that comes out as one of these words does not hold."""
    evaluator = Templates()
    assert evaluator.truth("{{ w }}", scope_of(evaluator, {"w": word})) is False
    assert evaluator.truth("{{ w }}", scope_of(evaluator, {"w": "yes"})) is True


def test_an_undefined_condition_is_an_error_or_false():
    """Strict languages hear of it; lenient ones take it as false."""
    strict, lenient = Templates(), Templates(strict=False)
    with pytest.raises(UndefinedName):
        strict.truth("{{ nobody.x }} > 3", scope_of(strict))
    assert lenient.truth("{{ nobody.x }} > 3", scope_of(lenient)) is False
    assert lenient.value("{{ nobody + 1 }}", scope_of(lenient)) is None


def test_collections():
    """Lists as they are, mappings as pairs, null as nothing, anything else an error."""
    evaluator = Templates()
    scope = scope_of(evaluator, {"xs": [1], "m": {"a": 1}, "s": "text", "z": None})
    assert evaluator.items("{{ xs }}", scope) == [1]
    assert evaluator.items("{{ m }}", scope) == [{"key": "a", "value": 1}]
    assert evaluator.items("{{ z }}", scope) == []
    with pytest.raises(ExpressionError, match="cannot loop over a str"):
        evaluator.items("{{ s }}", scope)


def test_a_language_adds_functions_and_views_of_its_own():
    """What a language offers works; what it does not expose is out of reach."""
    evaluator = Playbook()
    scope = scope_of(evaluator)
    assert evaluator.value("{{ done('a') and not done('b') }}", scope) is True
    assert evaluator.value("{{ view.open }}", scope) == 1
    with pytest.raises(ExpressionError, match="out of reach"):
        evaluator.value("{{ view.closed }}", scope)


def test_compiling_twice_gives_the_same_object():
    """Compiled expressions are kept."""
    dialect = Dialect()
    assert dialect.compile("{{ a }}") is dialect.compile("{{ a }}")
