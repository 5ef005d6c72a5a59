//! What the declarations say to others: the reference in docs/config.md, and the JSON Schema for
//! editors.

use serde_json::{Map, Value as Json, json};

use super::declare::{Setting, Shape};
use super::names::{TOP, declared, members};

/// The dialect of the schema.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// A setting, as the reference shows it. Values are written as in TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Its full name: `listen`, `tls.cert`, `defaults.retention`, `route.match`.
    pub name: String,
    /// What it means.
    pub meaning: String,
    /// Its default; nothing if there is none.
    pub default: Option<String>,
    /// Another value.
    pub example: String,
    /// Whether a reload applies it; else it needs a restart.
    pub is_live: bool,
}

/// Every setting, in the order of the reference.
#[must_use]
pub fn reference() -> Vec<Reference> {
    let all = declared();
    let rows = all.iter().map(|(name, setting)| {
        let default = effective_default(setting, &all).map(|text| toml(&setting.value(text)));
        let is_route = name.starts_with("route.") || name.starts_with("defaults.");
        Reference {
            name: name.clone(),
            meaning: sentences(setting),
            default,
            example: toml(&setting.value(setting.example)),
            is_live: setting.live || is_route,
        }
    });
    rows.collect()
}

/// The default of a setting, or of the one that holds in its place.
fn effective_default(
    setting: &Setting,
    all: &[(String, &'static Setting)],
) -> Option<&'static str> {
    let like = || all.iter().find(|(name, _)| Some(name.as_str()) == setting.like);
    setting.default.or_else(|| like().and_then(|(_, other)| other.default))
}

/// The JSON Schema of the file, for editors: names, kinds, limits, defaults and meanings.
#[must_use]
pub fn json_schema() -> Json {
    let mut schema = table(TOP, &[]);
    if let Json::Object(members) = &mut schema {
        members.insert("$schema".into(), DIALECT.into());
        members.insert("title".into(), "Justonce".into());
    }
    schema
}

fn table(settings: &'static [Setting], required: &[&str]) -> Json {
    let all = declared();
    let properties: Map<String, Json> = members(settings)
        .into_iter()
        .map(|setting| (setting.name.to_owned(), property(setting, &all)))
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn property(setting: &'static Setting, all: &[(String, &'static Setting)]) -> Json {
    let mut schema = match setting.shape {
        Shape::Value(schema) => schema(),
        Shape::Table(inner) | Shape::Group(inner) => table(inner, &[]),
        Shape::Tables(inner) => json!({ "type": "array", "items": table(inner, &["match"]) }),
        Shape::Named(inner) => {
            json!({ "type": "object", "additionalProperties": table(inner, &[]) })
        }
    };
    if let Json::Object(members) = &mut schema {
        members.insert("description".into(), sentences(setting).into());
        if let Some(default) = effective_default(setting, all) {
            members.insert("default".into(), setting.value(default));
        }
        if !setting.example.is_empty() {
            members.insert("examples".into(), json!([setting.value(setting.example)]));
        }
    }
    schema
}

/// The meaning, with single spaces.
fn sentences(setting: &Setting) -> String {
    setting.meaning.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Setting {
    /// A default or an example as JSON.
    fn value(&self, text: &str) -> Json {
        let schema = match self.shape {
            Shape::Value(schema) => schema(),
            _ => return Json::Null,
        };
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        match schema.get("type").and_then(Json::as_str) {
            Some("integer" | "number" | "boolean") => text.parse().unwrap_or(Json::Null),
            Some("object") => parts
                .filter_map(|part| part.split_once('='))
                .map(|(name, value)| (name.to_owned(), Json::from(value)))
                .collect(),
            _ if schema.get("items").is_some() => parts.map(Json::from).collect(),
            _ => Json::from(text),
        }
    }
}

/// JSON as TOML writes it.
fn toml(value: &Json) -> String {
    match value {
        Json::Array(items) => {
            format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", "))
        }
        Json::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("{name:?} = {}", toml(value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}
