//! From TOML text to the tree.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::report::Report;
use super::tree::{Member, Node, Origin, Table, Value};

/// The longest file, in bytes: a thousand routes take a tenth of it.
pub(super) const MAX_FILE_BYTES: usize = 4 * 1024 * 1024;
/// One mistake makes the TOML reader report others behind it: more than this many are noise.
const MAX_SYNTAX_PROBLEMS: usize = 5;

/// Reads the text of the report's file. What is no TOML is reported, and nothing comes back.
pub(super) fn read(text: &str, report: &mut Report) -> Option<Table> {
    if text.len() > MAX_FILE_BYTES {
        report.whole_file(format!("the file is longer than {MAX_FILE_BYTES} bytes"));
        return None;
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Some(members(table.into_inner()));
    }
    let mut last_line = None;
    for error in errors.into_iter().take(MAX_SYNTAX_PROBLEMS) {
        let span = error.span().unwrap_or(0..0);
        // Several errors in one line are mostly one mistake.
        let line = report.line_of(span.start);
        if last_line.replace(line) != Some(line) {
            let help = quotes_missing(text, line).then(|| "texts stand in quotes".to_owned());
            let message = format!("this is not TOML: {}", error.message());
            report.at(&Origin::File(span), message, help);
        }
    }
    None
}

/// Whether a line is `name = value` with words and no quotes.
fn quotes_missing(text: &str, line: usize) -> bool {
    let line = text.lines().nth(line - 1).unwrap_or_default();
    let value = line.split_once('=').map_or("", |(_, value)| value.trim());
    value.len() > 1 && !value.contains(['"', '\'', '[', '{'])
}

/// Reads one TOML value, as in a flag or a variable that starts with a bracket.
pub(super) fn value(text: &str, origin: &Origin) -> Result<Node, String> {
    let parsed = DeValue::parse(text).map_err(|error| error.message().to_owned())?;
    let mut node = node(parsed);
    move_to(&mut node, origin);
    Ok(node)
}

/// Places inside a flag's text are no places in the file.
fn move_to(node: &mut Node, origin: &Origin) {
    node.origin = origin.clone();
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| move_to(item, origin)),
        Value::Table(table) => table.values_mut().for_each(|member| {
            member.name_origin = origin.clone();
            move_to(&mut member.node, origin);
        }),
        _ => {}
    }
}

fn members(table: DeTable<'_>) -> Table {
    table
        .into_iter()
        .map(|(name, value)| {
            let name_origin = Origin::File(name.span());
            (name.into_inner().into_owned(), Member { name_origin, node: node(value) })
        })
        .collect()
}

fn node(value: Spanned<DeValue<'_>>) -> Node {
    let origin = Origin::File(value.span());
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => {
            // What does not fit is out of every range we have.
            Value::Integer(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(-1))
        }
        DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(flag) => Value::Boolean(flag),
        DeValue::Datetime(_) => Value::Date,
        DeValue::Array(items) => Value::List(items.into_iter().map(node).collect()),
        DeValue::Table(table) => Value::Table(members(table)),
    };
    Node { origin, value }
}
