//! The JSON Schema for editors: what is right passes, what is wrong does not.

use std::fs;
use std::path::PathBuf;

use boon::{Compiler, SchemaIndex, Schemas};
use justonce_config as config;
use serde_json::{Value, json};

const EXAMPLE: &str = include_str!("../../../../docs/justonce.example.toml");
/// Wrong files whose mistakes are not of names and kinds: a schema cannot see them.
const NOT_SEEN: [&str; 9] = [
    "contradictions.toml",
    "inherited.toml",
    "no_upstream.toml",
    "nobody_known.toml",
    "nobody_trusted.toml",
    "policy.toml",
    "secret.toml",
    "unix_proxies.toml",
    "unix_proxy_on_tcp.toml",
];

struct Schema {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Schema {
    fn new() -> Self {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource("justonce.json", config::json_schema()).expect("it is JSON");
        let index = compiler.compile("justonce.json", &mut schemas).expect("it is a schema");
        Self { schemas, index }
    }

    fn accepts(&self, file: &str) -> Result<(), String> {
        let value: toml::Value = toml::from_str(file).expect("it is TOML");
        let value = serde_json::to_value(value).expect("TOML is JSON");
        self.schemas.validate(&value, self.index).map_err(|error| error.to_string())
    }
}

fn files(folder: &str) -> Vec<(String, String)> {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/config/fixtures");
    let entries = fs::read_dir(fixtures.join(folder)).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let files: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).expect("a readable file"))
        })
        .collect();
    assert!(!files.is_empty());
    files
}

#[test]
fn right_files_and_the_example_are_accepted() {
    let schema = Schema::new();
    for (name, text) in files("right") {
        assert_eq!(schema.accepts(&text), Ok(()), "{name}");
    }
    assert_eq!(schema.accepts(EXAMPLE), Ok(()));
}

#[test]
fn wrong_files_are_refused_but_for_contradictions() {
    let schema = Schema::new();
    for (name, text) in files("wrong") {
        if toml::from_str::<toml::Table>(&text).is_err() {
            continue;
        }
        let expected = NOT_SEEN.contains(&name.as_str());
        assert_eq!(schema.accepts(&text).is_ok(), expected, "{name}");
    }
}

#[test]
fn unknown_names_are_refused_everywhere() {
    let schema = Schema::new();
    for text in [
        "colour = 'blue'",
        "limits = { colour = 'blue' }",
        "[defaults]\ncolour = 'blue'",
        "[defaults]\nmatch = 'POST /a'",
        "[defaults.fingerprint]\ncolour = 'blue'",
        "[upstreams.a]\ncolour = 'blue'",
        "[upstreams]\nurls = 'http://a:1'",
        "[[route]]\nmatch = 'POST /a'\ncolour = 'blue'",
        "[[route]]\nname = 'a route without a match'",
        "[defaults]\nstore_status = { '7xx' = 'keep' }",
    ] {
        assert!(schema.accepts(text).is_err(), "{text}");
    }
}

#[test]
fn every_property_says_what_it_means_and_its_examples_are_right() {
    let schema = config::json_schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let count = check_properties(&schema);
    assert!(count > 100, "{count}");
    assert_eq!(schema["properties"]["timeouts"]["properties"]["idle"]["default"], json!("90s"));
}

/// Checks the properties of an object against their own schemas; how many there were.
fn check_properties(object: &Value) -> usize {
    let properties = object["properties"].as_object().expect("properties");
    let counts = properties.iter().map(|(name, property)| {
        assert!(property["description"].as_str().is_some_and(|text| text.ends_with('.')), "{name}");
        if property.get("properties").is_some() {
            return 1 + check_properties(property);
        }
        for inner in ["items", "additionalProperties"] {
            if property[inner].get("properties").is_some() {
                return 1 + check_properties(&property[inner]);
            }
        }
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource("property.json", property.clone()).expect("it is JSON");
        let index = compiler.compile("property.json", &mut schemas).expect("it is a schema");
        let values = property["examples"].as_array().expect("examples").iter();
        for value in values.chain(property.get("default")) {
            let checked = schemas.validate(value, index).map_err(|error| error.to_string());
            assert_eq!(checked, Ok(()), "{name}");
        }
        1
    });
    counts.sum()
}
