//! Addresses: where to listen, where the API is.

use std::net::{Ipv4Addr, SocketAddr};

use http::Uri;
use justonce_net::SocketAddress;
use serde_json::json;

use crate::invalid::{Invalid, Read};
use crate::kind::{Kind, full_text, repeated, text};
use crate::tree::Node;

/// An address to listen on, or a Unix socket.
pub(super) fn listen(node: &Node) -> Read<SocketAddress> {
    let text = text(node)?.trim();
    match unix(node, text)? {
        Some(unix) => Ok(unix),
        None => socket(node, text).map(SocketAddress::Tcp),
    }
}

/// A Unix socket, if this is the address of one.
fn unix(node: &Node, text: &str) -> Read<Option<SocketAddress>> {
    let read = SocketAddress::unix(text).transpose();
    read.map_err(|why| Invalid::at(node, format!("{why}, found {}", repeated(text))))
}

/// The mode of a file, as `chmod` takes it.
pub(super) fn mode() -> Kind<u32> {
    let schema = || json!({ "type": "string", "pattern": "^\\s*0?[0-7]{3}\\s*$" });
    Kind::new(schema, |node| {
        let text = text(node)?.trim();
        let is_octal = matches!(text.len(), 3 | 4) && text.bytes().all(|c| c.is_ascii_digit());
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
        mode.ok_or_else(|| {
            let message = format!("expected a mode, as in \"0660\", found {}", repeated(text));
            Invalid::at(node, message)
        })
    })
}

fn socket(node: &Node, text: &str) -> Read<SocketAddr> {
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    text.parse().map_err(|_| {
        let message = format!(
            "expected an address and a port, as in \"127.0.0.1:8080\", found {}",
            repeated(text)
        );
        let port = text.trim_start_matches(':');
        let port: Option<u16> = port.parse().ok();
        let help = port.map(|port| format!("did you mean \"127.0.0.1:{port}\"?"));
        Invalid::at(node, message).help(help)
    })
}

/// An address for operators, or `off`. The command line takes the same, with or without the scheme.
pub(super) fn admin(node: &Node) -> Read<Option<SocketAddr>> {
    match text(node)?.trim() {
        "off" => Ok(None),
        address => {
            let bare = address.strip_prefix("http://").map(|bare| bare.trim_end_matches('/'));
            socket(node, bare.unwrap_or(address)).map(Some)
        }
    }
}

/// The address of an API, without a slash at the end.
pub(super) fn upstream(node: &Node) -> Read<String> {
    let text = full_text(node)?;
    if let Some(unix) = unix(node, &text)? {
        return Ok(unix.to_string());
    }
    let wrong = |why: &str| {
        let like = "as in \"http://127.0.0.1:9000\" or \"unix:/run/shop.sock\"";
        // There may be a password in it.
        let shown =
            if text.contains('@') { String::new() } else { format!(", found {}", repeated(&text)) };
        Invalid::at(node, format!("{why}, {like}{shown}"))
    };
    let uri: Uri = text.parse().map_err(|_| wrong("expected the address of the API"))?;
    let authority = uri.authority().filter(|authority| !authority.host().is_empty());
    let scheme = uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"));
    let (Some(scheme), Some(authority)) = (scheme, authority) else {
        return Err(wrong("expected http:// or https:// and a host"));
    };
    if authority.as_str().contains('@') {
        return Err(wrong("an upstream is named without user and password"));
    }
    let port_is_wrong = authority.port_u16().is_none() && authority.as_str().ends_with(':');
    if port_is_wrong || (authority.port().is_some() && authority.port_u16().is_none()) {
        return Err(wrong("the port is no number up to 65535"));
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() || text.contains('#') {
        return Err(wrong("an upstream has no path: requests keep the path they came with"));
    }
    Ok(format!("{scheme}://{authority}"))
}

/// Where the pages of problems are.
pub(super) fn problems_base(node: &Node) -> Read<String> {
    let text = full_text(node)?;
    let uri: Option<Uri> = text.parse().ok();
    let fits = uri.is_some_and(|uri| {
        let absolute = matches!(uri.scheme_str(), Some("http" | "https"));
        (absolute || text.starts_with('/')) && uri.query().is_none() && !text.contains(['"', '<'])
    });
    if !fits {
        let like = "as in \"https://docs.example.com/errors\"";
        return Err(Invalid::at(node, format!("expected an address or a path, {like}")));
    }
    Ok(text.trim_end_matches('/').to_owned())
}
