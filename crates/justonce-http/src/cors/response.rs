//! The CORS headers of responses.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
    LINK, LOCATION, RETRY_AFTER, VARY, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::settings::Cors;
use crate::headers::{LIFETIME, REPLAYED, STATUS};
use crate::problem::Instance;

/// What pages may read of every response.
static EXPOSED: [HeaderName; 4] = [REPLAYED, STATUS, LIFETIME, RETRY_AFTER];
/// What they may read of problems, too. In a response of the service these are its own, and it
/// decides about them.
static EXPOSED_OF_PROBLEMS: [HeaderName; 3] = [LINK, LOCATION, WWW_AUTHENTICATE];

const TRUE: HeaderValue = HeaderValue::from_static("true");

impl Cors {
    /// Adds to a response what the page that sent its request needs to read it. What the service
    /// said stays, but for the origin of another page in a response that is replayed.
    pub(crate) fn add_to<B>(&self, response: &mut Response<B>, origin: Option<&HeaderValue>) {
        let is_problem = response.extensions().get::<Instance>().is_some();
        let headers = response.headers_mut();
        if headers.contains_key(REPLAYED) {
            remove_other_origin(headers, origin);
        }
        if !headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
            self.allow(headers, origin);
        }
        if self.allowed_origins().is_some() {
            add_words(headers, &VARY, &["origin"]);
        }
        if headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
            let more: &[HeaderName] = if is_problem { &EXPOSED_OF_PROBLEMS } else { &[] };
            let names: Vec<&str> = EXPOSED.iter().chain(more).map(HeaderName::as_str).collect();
            add_words(headers, &ACCESS_CONTROL_EXPOSE_HEADERS, &names);
        }
    }

    /// Allows the page to read the response, if it may.
    pub(crate) fn allow(&self, headers: &mut HeaderMap, origin: Option<&HeaderValue>) {
        headers.remove(ACCESS_CONTROL_ALLOW_CREDENTIALS);
        let Some(allowed) = self.allowed(origin) else { return };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        if self.allows_credentials() {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
        }
    }
}

/// Removes the origin that a stored response was for, if it is not that of this request.
fn remove_other_origin(headers: &mut HeaderMap, origin: Option<&HeaderValue>) {
    let mut lines = headers.get_all(ACCESS_CONTROL_ALLOW_ORIGIN).into_iter();
    let stays = match (lines.next(), lines.next()) {
        (Some(one), None) => one == "*" || Some(one) == origin,
        _ => false,
    };
    if !stays {
        headers.remove(ACCESS_CONTROL_ALLOW_ORIGIN);
        headers.remove(ACCESS_CONTROL_ALLOW_CREDENTIALS);
    }
}

/// Adds the words of a list that are not in it yet. `Vary: *` has all of them.
pub(crate) fn add_words(headers: &mut HeaderMap, name: &HeaderName, words: &[&str]) {
    let lines = headers.get_all(name).into_iter();
    let lines = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let has: Vec<&[u8]> = lines.map(<[u8]>::trim_ascii).collect();
    if *name == VARY && has.contains(&&b"*"[..]) {
        return;
    }
    let is_new = |word: &&&str| !has.iter().any(|one| one.eq_ignore_ascii_case(word.as_bytes()));
    let new: Vec<&str> = words.iter().filter(is_new).copied().collect();
    if let Ok(line) = HeaderValue::try_from(new.join(", "))
        && !new.is_empty()
    {
        headers.append(name, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_added_once() {
        let words = |lines: &[&'static str], name: HeaderName| {
            let lines = lines.iter().map(|line| (name.clone(), HeaderValue::from_static(line)));
            let mut headers: HeaderMap = lines.collect();
            add_words(&mut headers, &name, &["origin", "retry-after"]);
            let all = headers.get_all(&name).into_iter();
            all.map(|line| line.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(words(&[], VARY), ["origin, retry-after"]);
        assert_eq!(words(&["Accept, Origin"], VARY), ["Accept, Origin", "retry-after"]);
        assert_eq!(words(&["Origin", " Retry-After ,x"], VARY), ["Origin", " Retry-After ,x"]);
        assert_eq!(words(&["*"], VARY), ["*"]);
        // With credentials a star is only the name of a header.
        let exposed = words(&["*"], ACCESS_CONTROL_EXPOSE_HEADERS);
        assert_eq!(exposed, ["*", "origin, retry-after"]);
    }
}
