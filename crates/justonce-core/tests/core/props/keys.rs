//! Keys, scopes and canonical JSON: equal where they must be, and never merged where they must not.

use std::collections::HashMap;

use justonce_core::{Canonical, Fingerprint, Key, MAX_KEY_BYTES, Operation, RecordId, Scope};
use proptest::prelude::*;

use crate::draw::json::{number, spelled, value};
use crate::draw::settings::cases;
use crate::draw::stored::scope;

/// Texts that try to pass for two parts in one.
fn tricky() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[ab/:|&=%~\u{0}-]{0,6}",
        prop::sample::select(vec!["", "child", "child-", "content-", "\u{0}", "a\u{0}b"])
            .prop_map(str::to_owned),
    ]
}

fn tricky_key() -> impl Strategy<Value = Key> {
    prop_oneof!["[ab /:|&=%~-]{1,6}", "[ -~]{1,255}"].prop_map(|text| Key::client(text).unwrap())
}

/// A number as a sign, digits and a power of ten, whatever its spelling.
struct Decimal {
    negative: bool,
    digits: String,
    power: i64,
}

fn decimal(text: &str) -> Decimal {
    let lower = text.to_lowercase();
    let (negative, rest) = match lower.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, lower.as_str()),
    };
    let (mantissa, power) = rest.split_once('e').unwrap_or((rest, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    Decimal {
        negative,
        digits: format!("{whole}{fraction}"),
        power: power.parse::<i64>().unwrap() - i64::try_from(fraction.len()).unwrap(),
    }
}

/// Whether two spellings are of the same number: both written out to the same power of ten.
fn same_number(a: &str, b: &str) -> bool {
    let (a, b) = (decimal(a), decimal(b));
    let power = a.power.min(b.power);
    let written_out = |d: &Decimal| {
        let zeros = "0".repeat(usize::try_from(d.power - power).unwrap());
        format!("{}{zeros}", d.digits).trim_start_matches('0').to_owned()
    };
    let (left, right) = (written_out(&a), written_out(&b));
    left == right && (a.negative == b.negative || left.is_empty())
}

/// Numbers near another: the same in another spelling, or different by very little.
fn near(text: &str, how: u8) -> String {
    let plain = !text.contains(['.', 'e', 'E']);
    match how {
        0 if plain => format!("{text}.0"),
        1 if plain => format!("{text}e0"),
        2 if plain => format!("{text}0e-1"),
        3 if plain => format!("{text}.00000000000000000000000000000001"),
        4 if plain => format!("{text}0"),
        5 if plain => format!("{text}e1"),
        0..=2 => text.replace('E', "e"),
        3 => text.replacen('e', "0e", 1),
        4 => text.replacen("e-", "e+", 1),
        5 => text.replacen('.', ".0", 1),
        6 => text.strip_prefix('-').map_or_else(|| format!("-{text}"), str::to_owned),
        _ => text.to_owned(),
    }
}

fn json(text: &str) -> String {
    match Canonical::of(text.as_bytes()) {
        Canonical::Json(json) => json,
        Canonical::Raw(_) => panic!("not JSON: {text}"),
    }
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn child_keys_are_stable_and_valid(parent in tricky_key(), step in tricky()) {
        let child = parent.child(&step);
        prop_assert_eq!(&child, &Key::client(parent.as_str()).unwrap().child(&step));
        prop_assert!(child.as_str().len() <= MAX_KEY_BYTES);
        prop_assert_eq!(Key::client(child.as_str()), Ok(child.clone()));
        prop_assert_ne!(child, parent);
    }

    #[test]
    fn child_keys_of_different_parents_and_steps_differ(
        pairs in prop::collection::vec((tricky_key(), tricky()), 2..12),
    ) {
        let mut seen = HashMap::new();
        for (parent, step) in pairs {
            let child = parent.child(&step);
            let pair = (parent, step);
            let before = seen.entry(child).or_insert_with(|| pair.clone());
            prop_assert_eq!(before, &pair);
        }
    }

    #[test]
    fn records_and_child_keys_of_different_operations_differ(
        a in (scope(), tricky_key(), tricky()),
        b in (scope(), tricky_key(), tricky()),
    ) {
        let ids = |(scope, key, step): &(Scope, Key, String)| {
            let operation = Operation::without_fingerprint(scope.clone(), key.clone());
            prop_assert_eq!(operation.id(), RecordId::of(scope, key));
            Ok((operation.id(), operation.child_key(step)))
        };
        let ((id_a, child_a), (id_b, child_b)) = (ids(&a)?, ids(&b)?);
        prop_assert_eq!(id_a == id_b, (&a.0, &a.1) == (&b.0, &b.1));
        prop_assert_eq!(child_a == child_b, a == b);
    }

    #[test]
    fn content_keys_are_of_the_source_and_the_canonical_payload(
        a in (tricky(), value(), any::<u64>()),
        b in (tricky(), value(), any::<u64>()),
    ) {
        let (text_a, text_b) = (spelled(&a.1, a.2), spelled(&b.1, b.2));
        let (key_a, key_b) =
            (Key::content(&a.0, text_a.as_bytes()), Key::content(&b.0, text_b.as_bytes()));
        prop_assert_eq!(&key_a, &Key::content(&a.0, spelled(&a.1, !a.2).as_bytes()));
        prop_assert_eq!(Key::client(key_a.as_str()), Ok(key_a.clone()));
        let same = a.0 == b.0 && json(&text_a) == json(&text_b);
        prop_assert_eq!(key_a == key_b, same);
    }

    #[test]
    fn payloads_that_are_not_json_count_byte_for_byte(a: Vec<u8>, b: Vec<u8>) {
        let raw = |bytes| matches!(Canonical::of(bytes), Canonical::Raw(_));
        if raw(&a) && raw(&b) {
            prop_assert_eq!(Key::content("s", &a) == Key::content("s", &b), a == b);
        }
        if raw(&a) {
            let canonical = Canonical::of(&a);
            prop_assert_eq!(canonical.as_bytes(), &a[..]);
        }
    }

    #[test]
    fn order_and_white_space_do_not_count(value in value(), one: u64, two: u64) {
        let (one, two) = (spelled(&value, one), spelled(&value, two));
        prop_assert_eq!(json(&one), json(&two));
        let scope = Scope::global();
        let (a, b) = (one.as_bytes(), two.as_bytes());
        prop_assert_eq!(Fingerprint::of_json(&scope, a), Fingerprint::of_json(&scope, b));
    }

    #[test]
    fn canonical_json_is_json_and_its_own_canonical_form(value in value(), seed: u64) {
        let canonical = json(&spelled(&value, seed));
        prop_assert_eq!(&json(&canonical), &canonical);
        prop_assert!(serde_json::from_str::<serde::de::IgnoredAny>(&canonical).is_ok());
    }

    #[test]
    fn two_numbers_are_never_merged(a in number(), b in number()) {
        if json(&a) == json(&b) {
            prop_assert!(same_number(&a, &b), "{} and {}", a, b);
        }
        prop_assert!(same_number(&a, &json(&a)), "{} became {}", a, json(&a));
    }

    #[test]
    fn two_numbers_that_are_near_are_never_merged(a in number(), how in 0_u8..8) {
        let b = near(&a, how);
        // A zero with another zero in front of it is no number.
        prop_assume!(matches!(Canonical::of(b.as_bytes()), Canonical::Json(_)));
        if json(&a) == json(&b) {
            prop_assert!(same_number(&a, &b), "{} and {}", a, b);
        }
    }

    #[test]
    fn equal_fractions_are_merged_however_they_are_spelled(
        whole in 0_u64..u64::from(u32::MAX),
        fraction in 1_u64..1_000_000,
        shift in 0_usize..12,
    ) {
        let plain = format!("{whole}.{fraction:06}");
        let shifted = format!("{whole}{fraction:06}{}e-{}", "0".repeat(shift), 6 + shift);
        prop_assert!(same_number(&plain, &shifted));
        prop_assert_eq!(json(&plain), json(&shifted));
    }

    #[test]
    fn scopes_read_back_from_their_text(scope in scope()) {
        prop_assert_eq!(Scope::parse(scope.as_str()), Ok(scope.clone()));
        let one_line = scope.as_str().chars().all(|c| !c.is_control());
        prop_assert!(one_line, "{:?}", scope);
    }

    #[test]
    fn any_text_that_is_a_scope_is_the_text_of_that_scope(
        text in "[a-c=&%0-9A-F]{0,12}|\\PC{0,20}",
    ) {
        if let Ok(scope) = Scope::parse(&text) {
            prop_assert_eq!(scope.as_str(), text);
        }
    }

    #[test]
    fn secrets_of_a_scope_are_not_shown(secret in "[a-zA-Z0-9]{12,40}") {
        let scope = Scope::builder().secret("principal", &secret).build().unwrap();
        prop_assert!(!scope.as_str().contains(&secret));
        let shown = format!("{scope:?}");
        prop_assert!(!shown.contains(&secret));
    }
}
