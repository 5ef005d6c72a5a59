//! The address of a database: its parameters about TLS, and the rest.
//!
//! The rest is parsed by the driver, which knows neither `verify-full` nor `sslrootcert`. So the
//! parameters about TLS are taken out first, by the driver's own syntax rules.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

/// Whether connections use TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TlsMode {
    /// They are in clear.
    Off,
    /// They use TLS, with these trust roots.
    On(RootSource),
}

/// Where the TLS trust roots come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RootSource {
    /// From the system.
    System,
    /// From this file only.
    File(PathBuf),
}

/// The parameters about TLS, as the address has them. The last of several counts.
#[derive(Debug, Default)]
struct TlsParameters {
    mode: Option<String>,
    roots: Option<String>,
}

/// Splits an address into what the driver parses and its parameters about TLS.
pub(crate) fn split(address: &str) -> Result<(String, TlsMode), InvalidAddress> {
    let mut tls = TlsParameters::default();
    let is_url = ["postgres://", "postgresql://"].iter().any(|one| address.starts_with(one));
    let rest = if is_url { split_url(address, &mut tls) } else { split_pairs(address, &mut tls)? };
    Ok((rest, tls.mode()?))
}

impl TlsParameters {
    /// Keeps a parameter if it is about TLS.
    fn takes(&mut self, name: &str, value: impl FnOnce() -> String) -> bool {
        match name {
            "sslmode" => self.mode = Some(value()),
            "sslrootcert" => self.roots = Some(value()),
            _ => return false,
        }
        true
    }

    fn mode(self) -> Result<TlsMode, InvalidAddress> {
        let roots = self.roots.filter(|roots| !roots.is_empty());
        match self.mode.as_deref() {
            None if roots.is_some() => Err(InvalidAddress::new(
                "sslrootcert without sslmode would not be used: add sslmode=verify-full",
            )),
            None | Some("disable") => Ok(TlsMode::Off),
            Some("require" | "verify-ca" | "verify-full") => Ok(TlsMode::On(match roots {
                Some(file) if file != "system" => RootSource::File(file.into()),
                _ => RootSource::System,
            })),
            Some(weak @ ("allow" | "prefer")) => Err(InvalidAddress::new(format!(
                "sslmode={weak} would leave it to the other side whether TLS is spoken: write \
                 sslmode=verify-full, or sslmode=disable"
            ))),
            Some(other) => Err(InvalidAddress::new(format!(
                "sslmode={other} is not known: use disable, require, verify-ca or verify-full"
            ))),
        }
    }
}

/// `postgres://user:password@host/database?name=value&name=value`.
fn split_url(url: &str, tls: &mut TlsParameters) -> String {
    // A password may contain a question mark.
    let (user, server) = url.split_at(url.find('@').map_or(0, |at| at + 1));
    let Some((server, query)) = server.split_once('?') else {
        return url.to_owned();
    };
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let others: Vec<&str> = query
        .split('&')
        .filter(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            !tls.takes(&decoded(name), || decoded(value))
        })
        .collect();
    let mark = if others.is_empty() { "" } else { "?" };
    format!("{user}{server}{mark}{}", others.join("&"))
}

/// `host=db user=shop name='a value'`.
fn split_pairs(text: &str, tls: &mut TlsParameters) -> Result<String, InvalidAddress> {
    let mut others = String::new();
    let mut left = text.trim();
    while !left.is_empty() {
        let unreadable = || InvalidAddress::new("expected name=value after name=value");
        let (name, value, after) = first_pair(left).ok_or_else(unreadable)?;
        let (pair, _) = left.split_at(left.len() - after.len());
        if !tls.takes(name, || value) {
            others.push_str(pair);
            others.push(' ');
        }
        left = after.trim_start();
    }
    Ok(others)
}

/// The first name, its value, and what follows.
fn first_pair(text: &str) -> Option<(&str, String, &str)> {
    let end = text.find(|sign: char| sign == '=' || sign.is_whitespace()).filter(|end| *end > 0)?;
    let (name, rest) = text.split_at(end);
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let (value, after) = first_value(rest)?;
    Some((name, value, after))
}

fn first_value(text: &str) -> Option<(String, &str)> {
    let quoted = text.strip_prefix('\'');
    let mut signs = quoted.unwrap_or(text).chars();
    let mut value = String::new();
    loop {
        let before = signs.as_str();
        match signs.next() {
            Some('\'') if quoted.is_some() => return Some((value, signs.as_str())),
            Some(sign) if quoted.is_none() && sign.is_whitespace() => return Some((value, before)),
            Some('\\') => value.extend(signs.next()),
            Some(sign) => value.push(sign),
            None if quoted.is_some() => return None,
            None => return Some((value, before)),
        }
    }
}

/// An address that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidAddress(String);

impl InvalidAddress {
    /// What is wrong, without any password.
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl fmt::Display for InvalidAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the address of PostgreSQL cannot be used: {}", self.0)
    }
}

impl std::error::Error for InvalidAddress {}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(address: &str) -> String {
        split(address).unwrap_err().to_string()
    }

    #[test]
    fn what_is_about_tls_is_taken_out_of_urls() {
        let file = |path: &str| TlsMode::On(RootSource::File(path.into()));
        let system = TlsMode::On(RootSource::System);
        for (url, rest, mode) in [
            ("postgres://h/db", "postgres://h/db", TlsMode::Off),
            ("postgres://h/db?sslmode=disable", "postgres://h/db", TlsMode::Off),
            ("postgresql://h?sslmode=require", "postgresql://h", system.clone()),
            ("postgres://h?sslmode=verify-ca&a=b", "postgres://h?a=b", system.clone()),
            ("postgres://h?a=b&ssl%6Dode=verify-full&c=d", "postgres://h?a=b&c=d", system.clone()),
            ("postgres://h?sslmode=require&sslrootcert=system", "postgres://h", system.clone()),
            ("postgres://h?sslmode=require&sslrootcert=", "postgres://h", system.clone()),
            (
                "postgres://h?sslrootcert=/a%20b.pem&sslmode=verify-full",
                "postgres://h",
                file("/a b.pem"),
            ),
            // A password may look like a query, and a later parameter counts.
            ("postgres://u:p?sslmode=x@h?sslmode=require", "postgres://u:p?sslmode=x@h", system),
            ("postgres://h?sslmode=require&sslmode=disable", "postgres://h", TlsMode::Off),
        ] {
            assert_eq!(split(url).unwrap(), (rest.to_owned(), mode), "{url}");
        }
    }

    #[test]
    fn what_is_about_tls_is_taken_out_of_pairs() {
        let full = TlsMode::On(RootSource::File("/a b.pem".into()));
        let text =
            " host=h sslmode = 'verify-full' password='it\\'s' sslrootcert='/a b.pem' port=5";
        assert_eq!(split(text).unwrap(), ("host=h password='it\\'s' port=5 ".to_owned(), full));
        assert_eq!(split("host=h").unwrap(), ("host=h ".to_owned(), TlsMode::Off));
        let escaped = TlsMode::On(RootSource::File("/a b.pem".into()));
        let text = "sslrootcert=/a\\ b.pem sslmode=require";
        assert_eq!(split(text).unwrap(), (String::new(), escaped));
        // Nothing that follows a slip is overlooked.
        for wrong in ["host=h =x sslmode=require", "host", "host h", "a='b sslmode=require"] {
            assert!(told(wrong).contains("name=value"), "{wrong}");
        }
    }

    #[test]
    fn modes_that_do_not_insist_are_refused() {
        for weak in ["allow", "prefer"] {
            let error = told(&format!("postgres://u:secret@h?sslmode={weak}"));
            assert!(error.contains("sslmode=verify-full"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let error = told("postgres://u:secret@h?sslmode=verify");
        for known in ["disable", "require", "verify-ca", "verify-full"] {
            assert!(error.contains(known) && !error.contains("secret"), "{error}");
        }
        assert!(told("postgres://h?sslrootcert=/a.pem").contains("sslmode=verify-full"));
    }
}
