//! The canonical form, beside the parser.

use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::*;

const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"a\":",
    "\"b\" :",
    "\"\\u0061\":",
    "\"a\"",
    "\"\"",
    "\"\u{e4}\"",
    "\"\\n\"",
    "\"\\",
    "\"",
    "1",
    "-0",
    "0",
    "-",
    ".5",
    "1.0",
    "e2",
    "E-1",
    "true",
    "null",
    "false",
    "nul",
    " ",
    "\n",
    "\t",
    "\u{1}",
    "{\"b\":1,\"a\":[]}",
    "[1, 2]",
    "1,",
    "\"x\",",
];

/// Pieces in any order, most of which are no JSON.
fn heaps() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES), 0..12).prop_map(|pieces| pieces.concat())
}

/// JSON, with a byte or two too few or too many at times.
fn texts() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(PIECES).prop_map(str::to_owned);
    let name =
        prop::sample::select(&["\"a\"", "\"b\"", "\"\\u0062\"", "\"c\"", " \"\u{e4}\" "][..]);
    let text = leaf.prop_recursive(4, 24, 5, move |inner| {
        let member =
            (name.clone(), inner.clone()).prop_map(|(name, value)| format!("{name}:{value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..5).prop_map(|all| format!("[{}]", all.join(","))),
            prop::collection::vec(member, 0..5).prop_map(|all| format!("{{{}}}", all.join(" ,"))),
        ]
    });
    let piece = prop::option::of(prop::sample::select(PIECES));
    (text, piece, any::<prop::sample::Index>()).prop_map(|(mut text, piece, at)| {
        if let Some(piece) = piece {
            let at = at.index(text.len() + 1);
            if text.is_char_boundary(at) {
                text.insert_str(at, piece);
            }
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// And what the parser makes of the canonical form is the same value.
    #[test]
    fn a_text_is_read_just_if_the_parser_reads_it(text in prop_oneof![heaps(), texts()]) {
        let read = canonical_json(text.as_bytes());
        let is_json = serde_json::from_str::<IgnoredAny>(&text).is_ok();
        prop_assert!(is_json || read.is_none(), "{}", text);
        // Numbers that the parser cannot hold aside.
        if let Ok(parsed) = serde_json::from_str::<Value>(&text) {
            match read {
                Some(json) => {
                    let again = serde_json::from_str(&json).unwrap();
                    prop_assert!(are_equal(&again, &parsed), "{} to {}", text, json);
                    prop_assert_eq!(canonical_json(json.as_bytes()), Some(json));
                }
                // The parser takes a name twice.
                None => prop_assert!(members(&parsed) < text.matches(':').count(), "{}", text),
            }
        }
    }
}

fn are_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| are_equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| are_equal(a, b)))
        }
        (a, b) => a == b,
    }
}

/// How many members all objects have.
fn members(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.iter().map(members).sum(),
        Value::Object(object) => object.len() + object.values().map(members).sum::<usize>(),
        _ => 0,
    }
}

fn json(text: &str) -> String {
    match Canonical::of(text.as_bytes()) {
        Canonical::Json(json) => json,
        Canonical::Raw(_) => format!("raw:{text}"),
    }
}

#[test]
fn big_numbers_are_not_rounded() {
    assert_eq!(json("9007199254740993"), "9007199254740993");
    assert_ne!(json("9007199254740993"), json("9007199254740992"));
    assert_ne!(json("0.1000000000000000055"), json("0.1"));
    assert_ne!(json("1e400"), json("1e401"));
    assert_ne!(json("100000000000000000000000000000000000000000001"), json("1e44"));
}

#[test]
fn equal_numbers_are_equal_however_spelled() {
    for (a, b) in [("1.0", "1"), ("1.50", "15e-1"), ("1E2", "100"), ("-0.5", "-5e-1")] {
        assert_eq!(json(a), json(b), "{a} {b}");
    }
    assert_eq!(json("0.0"), "0");
    assert_eq!(json("1e99999999999999999999"), "1e99999999999999999999");
}

#[test]
fn order_and_white_space_do_not_matter_but_arrays_do() {
    assert_eq!(json("{ \"b\" : [ 1 , 2 ] ,\n\"a\":null}"), r#"{"a":null,"b":[1,2]}"#);
    assert_ne!(json("[1,2]"), json("[2,1]"));
    assert_eq!(json("[ ]"), "[]");
    assert_eq!(json("{ }"), "{}");
}

#[test]
fn strings_are_compared_by_their_characters() {
    assert_eq!(json(r#""\u0041\/\n""#), json("\"A/\\n\""));
    assert_eq!(json(r#""a\\""#), r#""a\\""#);
    assert_ne!(json(r#""1""#), json("1"));
}

#[test]
fn what_stands_out_of_order_is_moved_as_a_whole() {
    for (text, canonical) in [
        (
            r#"{"b":{"d":1,"c":[{"f":2,"e":3}]},"a":4}"#,
            r#"{"a":4,"b":{"c":[{"e":3,"f":2}],"d":1}}"#,
        ),
        (r#"[{"b" :1.0, "\u0061":"\u0062"} ,0]"#, r#"[{"a":"b","b":1},0]"#),
        (r#"{"é":1,"z":2,"":3}"#, r#"{"":3,"z":2,"é":1}"#),
    ] {
        assert_eq!(json(text), canonical);
    }
}

#[test]
fn what_is_not_plain_json_counts_byte_for_byte() {
    for text in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"\u0061":1}"#,
        r#""\ud800""#,
        "01",
        "{",
        "",
        "1 2",
        "nul",
        "truex",
        "-",
        "-01",
        "1.",
        ".1",
        "1e",
        "1e+",
        "+1",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{a:1}",
        "{}}",
        "\"a",
        "\"\\",
        "\"\\x\"",
        "\"\n\"",
        "\"\\n\n\"",
        "\u{feff}1",
        "1\u{b}",
    ] {
        assert!(json(text).starts_with("raw:"), "{text}");
    }
    let deep = "[".repeat(500) + &"]".repeat(500);
    assert!(json(&deep).starts_with("raw:"));
    assert!(matches!(Canonical::of(b"\"\xff\""), Canonical::Raw(_)));
}
