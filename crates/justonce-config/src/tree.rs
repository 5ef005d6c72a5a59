//! The tree all sources are gathered in. Every value knows where it came from.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The name of the list of routes.
pub(super) const ROUTES: &str = "route";
/// The name of the table of upstreams.
pub(super) const UPSTREAMS: &str = "upstreams";
/// The name of the table of issuers of tokens.
pub(super) const JWT: &str = "jwt";
/// The name of the table for all routes.
pub(super) const DEFAULTS: &str = "defaults";

/// Where a value came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Origin {
    /// These bytes of the file.
    File(Range<usize>),
    /// The variable of this name.
    Variable(Arc<str>),
    /// This flag, as it was written but for its value.
    Flag(Arc<str>),
    /// Nothing: it is a default.
    #[default]
    Default,
}

/// A value and where it came from.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) origin: Origin,
    pub(super) value: Value,
}

impl Node {
    /// The text of a variable or a flag.
    pub(super) fn loose(text: &str, origin: Origin) -> Self {
        Self { origin, value: Value::Loose(text.to_owned()) }
    }
}

/// A value as TOML knows it, or as a variable or a flag has it.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Integer(i128),
    Float(f64),
    Boolean(bool),
    Date,
    List(Vec<Node>),
    Table(Table),
    /// The text of a variable or a flag: it becomes whatever the setting needs.
    Loose(String),
}

impl Value {
    /// What it is, for messages.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) | Self::Loose(_) => "a text",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Boolean(_) => "true or false",
            Self::Date => "a date",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// A member of a table: where its name stands, and its value.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) name_origin: Origin,
    pub(super) node: Node,
}

/// The members of a table.
pub(super) type Table = BTreeMap<String, Member>;

/// Puts a value at a path, over what was there. Tables on the way are made. What is in the way and
/// is no table stays: it is wrong, and will be reported as such.
pub(super) fn put(table: &mut Table, path: &[&str], node: Node) {
    let Some((name, rest)) = path.split_first() else { return };
    let origin = node.origin.clone();
    if rest.is_empty() {
        table.insert((*name).to_owned(), Member { name_origin: origin, node });
        return;
    }
    let member = table.entry((*name).to_owned()).or_insert_with(|| Member {
        name_origin: origin.clone(),
        node: Node { origin, value: Value::Table(Table::new()) },
    });
    if let Value::Table(inner) = &mut member.node.value {
        put(inner, rest, node);
    }
}
