//! A table of the tree while its settings are read.

use super::invalid::{Invalid, Read};
use super::report::Report;
use super::tree::{DEFAULTS, Member, Node, Origin, Table, Value};

/// A value, and where it came from.
#[derive(Clone, Debug)]
pub(super) struct Sourced<T> {
    pub(super) value: T,
    pub(super) origin: Origin,
}

/// The same value from another source is the same setting.
impl<T: PartialEq> PartialEq for Sourced<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// The first origin that is no default, if there is one.
pub(super) fn first_set(origins: [&Origin; 2]) -> Origin {
    let mut set = origins.into_iter().filter(|origin| **origin != Origin::Default);
    set.next().cloned().unwrap_or(Origin::Default)
}

/// A table that may be missing.
#[derive(Clone, Debug)]
pub(super) struct Section<'t> {
    table: Option<&'t Table>,
    /// What messages put before the names in it.
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
        let prefix =
            if name == DEFAULTS { String::new() } else { format!("{}{name}.", self.prefix) };
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
        read: impl FnOnce(&Node) -> Read<T>,
    ) -> Option<Sourced<T>> {
        let node = self.node(name)?;
        match read(node) {
            Ok(value) => Some(Sourced { value, origin: node.origin.clone() }),
            Err(invalid) => {
                self.refuse(name, invalid, report);
                None
            }
        }
    }

    fn refuse(&self, name: &str, invalid: Invalid, report: &mut Report) {
        let Invalid { origin, inside, message, help, more } = invalid;
        report.at(&origin, format!("`{}{name}{inside}`: {message}", self.prefix), help);
        more.into_iter().for_each(|invalid| self.refuse(name, invalid, report));
    }
}
