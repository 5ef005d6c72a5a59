//! JSON pointers and the canonical form they look into: never a panic, and the same finds as
//! another reader of RFC 6901.
#![no_main]

use justonce_fuzz::{Canonical, JsonPointer};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

// The pointer is the first line, the payload is the rest.
fuzz_target!(|input: &[u8]| {
    let mut halves = input.splitn(2, |byte| *byte == b'\n');
    let (Some(pointer), payload) = (halves.next(), halves.next().unwrap_or_default()) else {
        return;
    };
    let canonical = Canonical::of(payload);
    assert_eq!(Canonical::of(canonical.as_bytes()), canonical, "it is canonical already");
    let Some(text) = std::str::from_utf8(pointer).ok() else { return };
    let Ok(pointer) = JsonPointer::parse(text) else { return };
    assert_eq!(JsonPointer::parse(&pointer.to_string()).as_ref(), Ok(&pointer));
    let found = pointer.find(&canonical);
    if let Canonical::Json(json) = &canonical {
        agrees(json, &pointer, found);
    }
    let place = std::slice::from_ref(&pointer);
    let _ = canonical.clone().only(place);
    let _ = canonical.without(place);
});

fn agrees(json: &str, pointer: &JsonPointer, found: Option<&str>) {
    // Numbers are rounded by the other reader, and some are too large for it.
    let Ok(value) = serde_json::from_str::<Value>(json) else { return };
    let other = value.pointer(&pointer.to_string());
    assert_eq!(found.is_some(), other.is_some(), "{pointer} in {json}");
    if let (Some(found), Some(Value::String(other))) = (found, other) {
        assert_eq!(serde_json::from_str::<String>(found).ok().as_ref(), Some(other));
    }
}
