//! What a question can say about an operation.

use justonce::engine::Unresolved;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::config::{Fact, Template};

/// What stands for itself in a URL (RFC 3986): everything else could change what is asked.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A fact about an operation, as it is; nothing if it has none such.
pub(super) fn fact(about: &Unresolved, fact: Fact) -> Option<String> {
    match fact {
        Fact::Key => Some(about.key.as_str().to_owned()),
        Fact::Record => Some(about.id.to_string()),
        Fact::Tenant => about.scope.part("tenant"),
        Fact::Fence => Some(about.fence.to_string()),
    }
}

/// A path and query in which no fact can be anything but itself.
pub(super) fn target(template: &Template, about: &Unresolved) -> Option<String> {
    let encoded = |name| {
        let value = fact(about, name)?;
        // `..` is a step up, however it is written.
        let is_step = matches!(value.as_str(), "." | "..");
        (!is_step).then(|| utf8_percent_encode(&value, UNRESERVED).to_string())
    };
    template.fill(encoded)
}

/// The value of a header; nothing if it would arrive as another one, because spaces at its ends are
/// lost on the way.
pub(super) fn value(template: &Template, about: &Unresolved) -> Option<String> {
    let value = template.fill(|name| fact(about, name))?;
    (value.trim() == value).then_some(value)
}

#[cfg(test)]
pub(super) mod tests {
    use justonce::{Fence, Key, RecordId, Scope, Timestamp};

    use super::*;

    /// An operation with this key.
    pub(in crate::probe) fn about(key: &str) -> Unresolved {
        let scope = Scope::builder().tenant("a&b").build().unwrap();
        let key = Key::client(key).unwrap();
        let id = RecordId::of(&scope, &key);
        let (fence, since) = (Fence::new(7), Timestamp::ZERO);
        Unresolved { id, scope, key, fence, attempt: 1, since }
    }

    #[test]
    fn facts_cannot_change_what_is_asked() {
        let template = Template::parse("/payments/{key}?t={tenant}&f={fence}").unwrap();
        let asked = |key: &str| target(&template, &about(key));
        assert_eq!(asked("a-1.b_2~c").unwrap(), "/payments/a-1.b_2~c?t=a%26b&f=7");
        assert_eq!(
            asked("../x?y=1&z#%2e").unwrap(),
            "/payments/..%2Fx%3Fy%3D1%26z%23%252e?t=a%26b&f=7"
        );
        assert_eq!(asked(".."), None);
        let mut stranger = about("k");
        stranger.scope = Scope::global();
        assert_eq!(target(&template, &stranger), None, "without a tenant there is no question");
    }

    #[test]
    fn a_key_that_a_header_cannot_carry_is_not_asked_about() {
        let template = Template::parse("{key}").unwrap();
        let asked = |key: &str| value(&template, &about(key));
        assert_eq!(asked("order 17").as_deref(), Some("order 17"));
        for lost in [" order", "order ", " "] {
            assert_eq!(asked(lost), None, "{lost:?} would ask about another operation");
            assert!(target(&Template::parse("/a?k={key}").unwrap(), &about(lost)).is_some());
        }
        let inside = Template::parse("key={key}.").unwrap();
        assert_eq!(value(&inside, &about("a ")).as_deref(), Some("key=a ."));
    }
}
