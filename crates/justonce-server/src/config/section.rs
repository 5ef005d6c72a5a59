//! A table of the tree while its settings are read.

use super::complaint::{Complaint, Read};
use super::report::Report;
use super::schema::DEFAULTS;
use super::tree::{Member, Node, Origin, Table, Value};

/// A value that somebody set, and where.
#[derive(Clone, Debug)]
pub(super) struct Set<T> {
    pub(super) value: T,
    pub(super) origin: Origin,
}

/// A table that may be missing.
#[derive(Clone, Debug)]
pub(super) struct Section<'t> {
    table: Option<&'t Table>,
    /// What complaints put before the names in it.
    prefix: String,
}

impl<'t> Section<'t> {
    /// A table that is there.
    pub(super) const fn new(table: &'t Table) -> Self {
        Self { table: Some(table), prefix: String::new() }
    }

    /// A table inside this one. What is no table was reported with the names.
    pub(super) fn inside(&self, name: &str) -> Self {
        let table = match self.node(name).map(|node| &node.value) {
            Some(Value::Table(table)) => Some(table),
            _ => None,
        };
        // What may stand in a route, too, has the same name in both places.
        let prefix = if name == DEFAULTS { String::new() } else { format!("{name}.") };
        Self { table, prefix }
    }

    /// All members.
    pub(super) fn members(&self) -> impl Iterator<Item = (&'t str, &'t Member)> {
        self.table.into_iter().flatten().map(|(name, member)| (name.as_str(), member))
    }

    /// A value, if it is set.
    pub(super) fn node(&self, name: &str) -> Option<&'t Node> {
        self.table?.get(name).map(|member| &member.node)
    }

    /// Where a value came from.
    pub(super) fn origin(&self, name: &str) -> Origin {
        self.node(name).map_or(Origin::Default, |node| node.origin.clone())
    }

    /// Reads a value. What is wrong with it is reported, and then it counts as not set.
    pub(super) fn get<T>(
        &self,
        name: &str,
        report: &mut Report,
        convert: impl FnOnce(&Node) -> Read<T>,
    ) -> Option<Set<T>> {
        let node = self.node(name)?;
        match convert(node) {
            Ok(value) => Some(Set { value, origin: node.origin.clone() }),
            Err(complaint) => {
                self.complain(name, complaint, report);
                None
            }
        }
    }

    fn complain(&self, name: &str, complaint: Complaint, report: &mut Report) {
        let Complaint { origin, message, help, more } = complaint;
        report.at(&origin, format!("`{}{name}`: {message}", self.prefix), help);
        more.into_iter().for_each(|complaint| self.complain(name, complaint, report));
    }

    /// Reads a value, with a default.
    pub(super) fn get_or<T>(
        &self,
        name: &str,
        default: T,
        report: &mut Report,
        convert: impl FnOnce(&Node) -> Read<T>,
    ) -> T {
        self.get(name, report, convert).map_or(default, |set| set.value)
    }
}
