//! Values, errors and limits of expressions.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;

struct World(Value);

impl Scope for World {
    fn value(&self, path: &[String]) -> Result<(Value, usize), EvaluationError> {
        let value = path.first().and_then(|name| self.0.get(name));
        value.cloned().map(|value| (value, 1)).ok_or_else(|| EvaluationError("unknown".into()))
    }
}

impl Names for World {
    fn type_of(&self, path: &[String]) -> Result<Type, String> {
        let fields = BTreeMap::from([
            ("n".to_owned(), Type::Number),
            ("name".to_owned(), Type::Text),
            ("list".to_owned(), Type::List(Box::new(Type::Number))),
            ("any".to_owned(), Type::Any),
        ]);
        Type::Fields(fields).select(path)
    }
}

fn world() -> World {
    World(json!({"n": 3, "name": "Ada", "list": [1, 2, 3], "any": {"deep": {"x": 1.5}, "empty": null}}))
}

fn value(text: &str) -> Result<Value, String> {
    let expression = Expression::parse(text).map_err(|error| error.to_string())?;
    expression.check(&world()).map_err(|error| error.to_string())?;
    expression.evaluate(&world()).map_err(|error| error.to_string())
}

#[test]
fn expressions_have_the_values_of_cel() {
    for (text, expected) in [
        ("1 + 2 * 3 == 7", json!(true)),
        ("(1 + 2) * 3", json!(9)),
        ("7 / 2", json!(3)),
        ("7.0 / 2", json!(3.5)),
        ("-n + 1", json!(-2)),
        ("10 - 3 - 2", json!(5)),
        ("!(n > 2) || name == 'Ada'", json!(true)),
        ("n in list", json!(true)),
        ("'x' in {'x': 1}", json!(true)),
        ("list[1]", json!(2)),
        ("any.deep.x", json!(1.5)),
        ("any['deep'].x", json!(1.5)),
        ("has(any.deep)", json!(true)),
        ("has(any.shallow)", json!(false)),
        ("any.empty == null", json!(true)),
        ("size(list) == 3 && size(name) == 3", json!(true)),
        ("list.filter(x, x > 1).map(x, x * 10)", json!([20, 30])),
        ("list.all(x, x > 0) && list.exists(x, x == 3)", json!(true)),
        ("list.map(x, string(x)).join(',')", json!("1,2,3")),
        ("'a,b'.split(',')", json!(["a", "b"])),
        ("name.lowerAscii().startsWith('a')", json!(true)),
        ("n > 2 ? 'many' : 'few'", json!("many")),
        ("lists.range(3)", json!([0, 1, 2])),
        ("int('42') + int(1.9)", json!(43)),
        ("1 == 1.0", json!(true)),
        ("[1] + [2]", json!([1, 2])),
        ("{'a': n}", json!({"a": 3})),
        (r#""tab\t\"quoted\"""#, json!("tab\t\"quoted\"")),
    ] {
        assert_eq!(value(text), Ok(expected), "{text}");
    }
}

#[test]
fn a_syntax_error_has_its_column_and_the_expected_syntax() {
    let told: Vec<_> = [
        "n >",
        "n ==",
        "(n",
        "nme == 1",
        "n + name",
        "n == 'x'",
        "name.foo",
        "list[0",
        "size(n)",
        "foo(1)",
        "name.frob()",
        "'open",
        "n ? 1 : 2",
        "n $ 1",
        "has(n)",
        "'a' in list",
        "list.map(1, 2)",
        "1 2",
    ]
    .into_iter()
    .map(|text| format!("{text}: {}", value(text).unwrap_err()))
    .collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn an_evaluation_error_is_one_sentence() {
    let told: Vec<_> =
        ["any.shallow", "n / 0", "list[7]", "any.deep.x.y", "9223372036854775807 + n", "any + 1"]
            .into_iter()
            .map(|text| format!("{text}: {}", value(text).unwrap_err()))
            .collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn an_evaluation_is_bounded_by_fuel() {
    let nested = "lists.range(1000).map(a, lists.range(1000).map(b, lists.range(1000).map(c, a * b * c)))";
    assert!(value(nested).unwrap_err().contains("units"));
    let doubling = "lists.range(900000)";
    assert!(value(doubling).unwrap_err().contains("units"));
}

#[test]
fn deeply_nested_expressions_are_rejected() {
    for text in [
        format!("{}n{}", "(".repeat(900), ")".repeat(900)),
        "!".repeat(1000) + "true",
        vec!["n"; 900].join("+"),
        format!("any{}", "[0]".repeat(600)),
        "x".repeat(limits::EXPRESSION_BYTES_MAX + 1),
    ] {
        assert!(Expression::parse(&text).is_err(), "{text}");
    }
}

proptest! {
    /// Each text is rejected, or has a value or an error; no text causes a panic.
    #[test]
    fn no_text_panics(text in r#"[-a-z0-9 .+*/%()\[\]{},:?!<>=&|'"\\\n_é]{0,60}"#) {
        if let Ok(expression) = Expression::parse(&text) {
            let _ = expression.check(&world());
            let _ = expression.evaluate(&world());
        }
    }

    /// The evaluation of a checked expression fails only because of values, never because of the types of declared
    /// names.
    #[test]
    fn a_checked_expression_of_declared_names_has_a_value(
        a in prop::sample::select(vec!["n", "name", "list", "1", "'x'", "true", "[1]"]),
        b in prop::sample::select(vec!["n", "name", "list", "2.5", "'y'", "false", "list.map(x, x)"]),
        operator in prop::sample::select(vec!["+", "-", "*", "==", "!=", "<", ">=", "in", "&&", "||"]),
    ) {
        let expression = Expression::parse(&format!("{a} {operator} {b}")).unwrap();
        if expression.check(&world()).is_ok() {
            prop_assert!(expression.evaluate(&world()).is_ok(), "{a} {operator} {b}");
        }
    }
}
