//! From a file, variables and flags to settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::flags::Flags;
use super::names::{CONFIG_VARIABLE, VARIABLE_PREFIX, check_names};
use super::report::{ConfigError, Report};
use super::settings::{Settings, StoreUrl};
use super::tree::{Origin, Table};
use super::{file, overlay, settings};

/// Reads a configuration from its text alone: no variables, no flags, nothing from the disk.
///
/// # Errors
///
/// If anything in it is wrong: all of it at once, as far as possible.
pub fn parse(text: &str, file_name: &str) -> Result<Settings, ConfigError> {
    parse_with(Some((file_name, text)), &BTreeMap::new(), &Flags::default())
}

/// Reads a configuration from the name and the text of its file, variables and flags. Variables
/// that do not begin with `JUSTONCE_` are not looked at.
///
/// # Errors
///
/// If anything in it is wrong: all of it at once, as far as possible.
pub fn parse_with(
    file: Option<(&str, &str)>,
    variables: &BTreeMap<String, String>,
    flags: &Flags,
) -> Result<Settings, ConfigError> {
    let mut report = Report::new(file);
    let mut tree = match file {
        None => Table::new(),
        Some((_, text)) => match file::read(text, &mut report) {
            Some(tree) => tree,
            None => return Err(report.into_error()),
        },
    };
    let ignored = overlay::variables(&mut tree, variables, &mut report);
    overlay::flags(&mut tree, flags, &mut report);
    check_names(&tree, &mut report);
    match settings::settings(&tree, &mut report) {
        Some(settings) if report.is_empty() => {
            Ok(Settings { ignored_variables: ignored, ..settings })
        }
        _ => Err(report.into_error()),
    }
}

/// Reads the file that the flags or `JUSTONCE_CONFIG` name, if they name one, and the rest.
///
/// # Errors
///
/// If the file cannot be read, or anything in the configuration is wrong.
pub fn load(flags: &Flags, variables: &BTreeMap<String, String>) -> Result<Settings, ConfigError> {
    let named = variables.get(CONFIG_VARIABLE).map(PathBuf::from);
    let from_variable = flags.config.is_none();
    let Some(path) = flags.config.clone().or(named) else {
        return parse_with(None, variables, flags);
    };
    let name = path.display().to_string();
    match std::fs::read_to_string(&path) {
        Ok(text) => parse_with(Some((&name, &text)), variables, flags),
        Err(error) => Err(unreadable(&path, from_variable, &error)),
    }
}

/// Reads the address of a store alone, as `--store` takes it.
///
/// # Errors
///
/// If it is none.
pub fn store_url(text: &str) -> Result<StoreUrl, ConfigError> {
    // Nothing else of a configuration is needed here; this upstream is never asked.
    let upstream = vec!["http://127.0.0.1:9".to_owned()];
    let flags = Flags { store: Some(text.to_owned()), upstream, ..Flags::default() };
    parse_with(None, &BTreeMap::new(), &flags).map(|settings| settings.store)
}

fn unreadable(path: &Path, from_variable: bool, error: &std::io::Error) -> ConfigError {
    let mut report = Report::new(None);
    let origin = if from_variable {
        Origin::Variable(CONFIG_VARIABLE.into())
    } else {
        Origin::Flag("--config".into())
    };
    report.at(&origin, format!("cannot read {}: {error}", path.display()), None);
    report.into_error()
}

/// The variables of this process that are ours. What is no Unicode is kept readable, so that it is
/// refused by its name and not passed over.
#[must_use]
pub fn variables_of_the_process() -> BTreeMap<String, String> {
    std::env::vars_os()
        .map(|(name, value)| {
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        })
        .filter(|(name, _)| name.starts_with(VARIABLE_PREFIX))
        .collect()
}
