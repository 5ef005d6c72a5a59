//! `scope`: whose namespace keys live in.

use justonce_http::{Claim, ScopePart};

use crate::invalid::{Invalid, Read};
use crate::kind::{header_in, repeated, text};
use crate::nearest::did_you_mean;
use crate::report::Report;
use crate::section::Sourced;
use crate::tree::Node;

/// `caller`, `address`, `certificate`, `header:x-user`, `cookie:session`, `jwt:sub`, each perhaps
/// with `principal:` in front, or `tenant:header:x-tenant`.
pub(super) fn part(node: &Node) -> Read<ScopePart> {
    let text = text(node)?.trim();
    let (is_tenant, source) = match text.split_once(':') {
        Some(("tenant", source)) => (true, source),
        Some(("principal", source)) => (false, source),
        _ => (false, text),
    };
    match (is_tenant, source.split_once(':')) {
        (false, None) if source == "caller" => Ok(ScopePart::Caller),
        (false, None) if source == "address" => Ok(ScopePart::Address),
        (false, None) if source == "certificate" => Ok(ScopePart::Certificate),
        (false, Some(("jwt", claim))) => Ok(ScopePart::Claim(claim_in(claim.trim(), node)?)),
        (false, Some(("header", name))) => Ok(ScopePart::Principal(header_in(name.trim(), node)?)),
        (true, Some(("header", name))) => Ok(ScopePart::Tenant(header_in(name.trim(), node)?)),
        (false, Some(("cookie", name))) => Ok(ScopePart::Cookie(cookie_in(name.trim(), node)?)),
        _ => {
            let what = "\"caller\", \"address\", \"certificate\", \"header:x-user\", \
                        \"cookie:session\", \"jwt:sub\" or \"tenant:header:x-tenant\"";
            let message = format!("expected {what}, found {}", repeated(text));
            let name = !text.contains(':') && header_in(text, node).is_ok();
            let header = || name.then(|| format!("did you mean \"header:{text}\"?"));
            let help = did_you_mean(text, ["caller", "address", "certificate"]).or_else(header);
            Err(Invalid::at(node, message).help(help))
        }
    }
}

/// A claim: any text after the first colon, or a JSON pointer.
fn claim_in(claim: &str, node: &Node) -> Read<Claim> {
    Claim::parse(claim).map_err(|why| {
        let message = format!("expected a claim, as in \"jwt:sub\", found {}", repeated(claim));
        Invalid::at(node, format!("{message}: {why}"))
    })
}

/// The name of a cookie.
fn cookie_in(name: &str, node: &Node) -> Read<Box<str>> {
    let is_fit = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte);
    if !name.is_empty() && name.bytes().all(is_fit) {
        return Ok(name.into());
    }
    Err(Invalid::at(node, format!("expected the name of a cookie, found {}", repeated(name))))
}

/// Each part once, and one tenant.
pub(super) fn check(scope: &Sourced<Vec<ScopePart>>, report: &mut Report) {
    let mut seen = Vec::new();
    for part in &scope.value {
        if seen.contains(&part) {
            report.at(&scope.origin, format!("`scope`: `{part}` is listed twice"), None);
        }
        seen.push(part);
    }
    let tenants = seen.iter().filter(|part| matches!(part, ScopePart::Tenant(_)));
    if tenants.count() > 1 {
        let message = "`scope`: a caller has one tenant, and two headers tell it";
        let help = "name the other header without `tenant:`".to_owned();
        report.at(&scope.origin, message.to_owned(), Some(help));
    }
}
