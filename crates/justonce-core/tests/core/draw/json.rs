//! JSON texts: any value, spelled in any order and with any white space.

use std::collections::BTreeMap;

use justonce_core::Entropy;
use proptest::prelude::*;

/// A JSON value whose numbers are kept as they were spelled.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    Word(&'static str),
    Number(String),
    Text(String),
    Array(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

/// The spelling of any number within reach of exact comparison.
pub(crate) fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?(0|[1-9][0-9]{0,45})",
        "-?(0|[1-9][0-9]{0,20})\\.[0-9]{1,20}",
        "-?(0|[1-9][0-9]{0,20})[eE][+-]?[0-9]{1,2}",
        "-?(0|[1-9][0-9]{0,10})\\.[0-9]{1,10}[eE][+-]?[0-9]{1,2}",
    ]
}

/// Any value.
pub(crate) fn value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["null", "true", "false"]).prop_map(Json::Word),
        number().prop_map(Json::Number),
        any::<String>().prop_map(Json::Text),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Json::Array),
            prop::collection::btree_map(any::<String>(), inner, 0..5).prop_map(Json::Object),
        ]
    })
}

/// The text of a value; the seed chooses order, white space and the escaping of characters.
pub(crate) fn spelled(value: &Json, seed: u64) -> String {
    let mut text = String::new();
    let pen = Pen(Entropy::seeded(seed));
    pen.value(&mut text, value);
    text
}

struct Pen(Entropy);

impl Pen {
    fn one_of(&self, count: u32) -> u32 {
        self.0.next_u32() % count
    }

    fn space(&self, text: &mut String) {
        for _ in 0..self.one_of(3) {
            text.push_str([" ", "\t", "\n", "\r"].get(self.one_of(4) as usize).expect("four"));
        }
    }

    fn value(&self, text: &mut String, value: &Json) {
        self.space(text);
        match value {
            Json::Word(word) => text.push_str(word),
            Json::Number(number) => text.push_str(number),
            Json::Text(string) => self.string(text, string),
            Json::Array(values) => {
                text.push('[');
                for (at, value) in values.iter().enumerate() {
                    text.push_str(if at > 0 { "," } else { "" });
                    self.value(text, value);
                }
                self.space(text);
                text.push(']');
            }
            Json::Object(members) => self.object(text, members),
        }
        self.space(text);
    }

    fn object(&self, text: &mut String, members: &BTreeMap<String, Json>) {
        let mut shuffled: Vec<_> = members.iter().map(|m| (self.0.next_u64(), m)).collect();
        shuffled.sort_by_key(|(order, _)| *order);
        text.push('{');
        for (at, (_, (name, value))) in shuffled.into_iter().enumerate() {
            text.push_str(if at > 0 { "," } else { "" });
            self.space(text);
            self.string(text, name);
            self.space(text);
            text.push(':');
            self.value(text, value);
        }
        self.space(text);
        text.push('}');
    }

    fn string(&self, text: &mut String, string: &str) {
        text.push('"');
        for c in string.chars() {
            let must = c == '"' || c == '\\' || c < ' ';
            if must || self.one_of(4) == 0 {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            } else {
                text.push(c);
            }
        }
        text.push('"');
    }
}
