//! Variables that Kubernetes puts into every container for each Service of its namespace. Those of
//! a Service whose name begins with `justonce` look like ours.

use std::net::IpAddr;

use super::names::VARIABLE_PREFIX;

/// Whether a variable is one of those, by its name and by its value.
pub(super) fn is_service_link(name: &str, value: &str) -> bool {
    let Some(rest) = name.strip_prefix(VARIABLE_PREFIX) else { return false };
    // The name of a Service may go on after `justonce`: every part may be where the link begins.
    let starts = std::iter::once(0).chain(rest.match_indices('_').map(|(at, _)| at + 1));
    starts.filter_map(|at| rest.get(at..)).any(|link| is_link(link, value))
}

fn is_link(link: &str, value: &str) -> bool {
    match link {
        "SERVICE_HOST" => is_address(value),
        "SERVICE_PORT" => is_port(value),
        "PORT" => is_endpoint(value),
        _ => {
            if let Some(name) = link.strip_prefix("SERVICE_PORT_") {
                return !name.is_empty() && is_port(value);
            }
            let Some(rest) = link.strip_prefix("PORT_") else { return false };
            let mut parts = rest.split('_');
            let (port, protocol) = (parts.next().unwrap_or_default(), parts.next());
            let known = protocol.is_some_and(|protocol| PROTOCOLS.contains(&protocol));
            let fits = match parts.next() {
                None => is_endpoint(value),
                Some("PROTO") => PROTOCOLS.contains(&value.to_uppercase().as_str()),
                Some("PORT") => is_port(value),
                Some("ADDR") => is_address(value),
                Some(_) => false,
            };
            is_port(port) && known && parts.next().is_none() && fits
        }
    }
}

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

fn is_address(text: &str) -> bool {
    text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

/// As in `tcp://10.0.12.7:8080`.
fn is_endpoint(text: &str) -> bool {
    let Some((protocol, place)) = text.split_once("://") else { return false };
    let Some((address, port)) = place.rsplit_once(':') else { return false };
    PROTOCOLS.contains(&protocol.to_uppercase().as_str()) && is_address(address) && is_port(port)
}
