//! `store_status`: what becomes of an operation by the status of its response.

use std::fmt;

use justonce_http::{GrpcStatus, ResponseEffect};
use serde_json::json;

use crate::invalid::{Invalid, Read};
use crate::kind::{Kind, choice, repeated};
use crate::tree::{Node, Value};

/// What becomes of an operation that was answered with some status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRule {
    /// Which responses.
    pub of: ResponseSet,
    /// What becomes of it.
    pub then: ResponseEffect,
}

/// Which responses a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResponseSet {
    /// Those with a status of HTTP.
    Http(StatusSet),
    /// Those with a status of gRPC.
    Grpc(GrpcStatus),
}

impl ResponseSet {
    /// Reads `404`, `5xx` or `UNAVAILABLE`.
    fn parse(name: &str) -> Option<Self> {
        let grpc = || GrpcStatus::from_name(name.trim()).map(Self::Grpc);
        StatusSet::parse(name).map(Self::Http).or_else(grpc)
    }
}

impl fmt::Display for ResponseSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(set) => set.fmt(f),
            Self::Grpc(status) => status.fmt(f),
        }
    }
}

/// Statuses of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusSet {
    /// A class: 5 for 5xx.
    Class(u16),
    /// One code.
    Code(u16),
}

impl StatusSet {
    /// Reads `404` or `5xx`.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase();
        if let Some(class) = name.strip_suffix("xx") {
            let class = class.parse().ok().filter(|class| (2..=5).contains(class));
            return class.map(Self::Class);
        }
        let digits = name.len() == 3 && name.bytes().all(|byte| byte.is_ascii_digit());
        let code = name.parse().ok().filter(|code| digits && (200..=599).contains(code));
        code.map(Self::Code)
    }
}

impl fmt::Display for StatusSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class(class) => write!(f, "{class}xx"),
            Self::Code(code) => write!(f, "{code}"),
        }
    }
}

/// A table from statuses and classes to what becomes of their operations.
pub(super) fn statuses() -> Kind<Vec<StatusRule>> {
    let schema = || {
        let grpc: Vec<_> = GrpcStatus::ALL.iter().map(|status| status.as_str()).collect();
        let name = format!("^([2-5]([xX][xX]|[0-9][0-9])|{})$", grpc.join("|"));
        let properties = json!({ name: then().schema() });
        json!({
            "type": "object", "patternProperties": properties, "additionalProperties": false,
        })
    };
    Kind::new(schema, read).otherwise(Vec::new())
}

fn then() -> Kind<ResponseEffect> {
    choice(&[
        ("keep", ResponseEffect::Final),
        ("release", ResponseEffect::NotExecuted),
        ("unknown", ResponseEffect::Unknown),
    ])
}

fn read(node: &Node) -> Read<Vec<StatusRule>> {
    // What is no table was reported with the names.
    let Value::Table(table) = &node.value else { return Ok(Vec::new()) };
    let (mut rules, mut wrong) = (Vec::new(), Vec::new());
    for (name, member) in table {
        let of = ResponseSet::parse(name);
        if of.is_none() {
            let message = format!(
                "expected a status from 200 to 599, a class from \"2xx\" to \"5xx\" or the name of \
                 a status of gRPC, found {}",
                repeated(name)
            );
            wrong
                .push(Invalid { origin: member.name_origin.clone(), ..Invalid::at(node, message) });
        }
        match then().read(&member.node) {
            Ok(then) => rules.extend(of.map(|of| StatusRule { of, then })),
            Err(invalid) => wrong.push(Invalid { inside: format!(".{name}"), ..invalid }),
        }
    }
    Invalid::all(wrong).map_or(Ok(rules), Err)
}

/// Adds what is said below and not here. Codes come after classes, so that the last that fits
/// counts.
pub(super) fn merge(rules: &mut Vec<StatusRule>, below: &[StatusRule]) {
    let new = below.iter().filter(|rule| !rules.iter().any(|own| own.of == rule.of));
    let new: Vec<_> = new.copied().collect();
    rules.extend(new);
    rules.sort_by_key(|rule| rule.of);
}
