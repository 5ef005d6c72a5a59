//! The settings of a route for cross-origin requests.

use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::origin::Origin;

/// How long browsers may keep the answer to a preflight, by default.
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(600);

/// Which web pages may read the responses of a route.
///
/// What the service itself says in a response counts: the layer adds only what is not there.
///
/// ```
/// use justonce_http::{Cors, Origin, Preflights, Rule};
///
/// // The default: nothing is added.
/// let none = Rule::default();
///
/// // Customised: pages of one origin, with cookies; the layer answers preflights.
/// let shop = Cors::origins([Origin::parse("https://shop.example.com")?])
///     .credentials(true)
///     .preflights(Preflights::Answer);
/// let payments = Rule::default().cors(shop);
/// # Ok::<(), justonce_http::OriginError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// `None` for all.
    origins: Option<Vec<Origin>>,
    credentials: bool,
    preflights: Preflights,
    headers: Vec<HeaderName>,
    max_age: Duration,
}

/// Who answers the preflights of a route: the `OPTIONS` requests by which browsers ask whether a
/// page may send something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preflights {
    /// The service: they pass like every `OPTIONS`.
    Pass,
    /// The layer.
    Answer,
}

impl Cors {
    /// Pages of these origins may read the responses.
    #[must_use]
    pub fn origins(origins: impl IntoIterator<Item = Origin>) -> Self {
        Self { origins: Some(origins.into_iter().collect()), ..Self::any() }
    }

    /// All pages may read the responses, but only those to requests without cookies and
    /// certificates: [`Cors::credentials`] has no effect.
    #[must_use]
    pub const fn any() -> Self {
        Self {
            origins: None,
            credentials: false,
            preflights: Preflights::Pass,
            headers: Vec::new(),
            max_age: DEFAULT_MAX_AGE,
        }
    }

    /// Sets whether pages may send cookies and client certificates. Default: no. An `Authorization`
    /// that the page sets itself needs no permission of this kind.
    #[must_use]
    pub fn credentials(self, credentials: bool) -> Self {
        Self { credentials, ..self }
    }

    /// Sets who answers preflights. Default: [`Preflights::Pass`].
    #[must_use]
    pub fn preflights(self, preflights: Preflights) -> Self {
        Self { preflights, ..self }
    }

    /// Sets which headers pages may send, beside those that the route itself reads, `Content-Type`
    /// and `Prefer`. Only for [`Preflights::Answer`]. Default: none.
    #[must_use]
    pub fn headers(self, headers: Vec<HeaderName>) -> Self {
        Self { headers, ..self }
    }

    /// Sets how long browsers may keep the answer to a preflight. Only for [`Preflights::Answer`].
    /// Default: 10 minutes.
    #[must_use]
    pub fn max_age(self, max_age: Duration) -> Self {
        Self { max_age, ..self }
    }

    /// The origins whose pages may read the responses; `None` for all.
    #[must_use]
    pub fn allowed_origins(&self) -> Option<&[Origin]> {
        self.origins.as_deref()
    }

    /// Whether pages may send cookies and client certificates.
    #[must_use]
    pub const fn allows_credentials(&self) -> bool {
        self.credentials && self.origins.is_some()
    }

    /// Whether the layer answers preflights.
    #[must_use]
    pub const fn answers_preflights(&self) -> bool {
        matches!(self.preflights, Preflights::Answer)
    }

    /// The headers that pages may send beside the usual ones.
    #[must_use]
    pub fn allowed_headers(&self) -> &[HeaderName] {
        &self.headers
    }

    pub(crate) const fn max_age_seconds(&self) -> u64 {
        self.max_age.as_secs()
    }

    /// The value of `Access-Control-Allow-Origin` for a page, if it may read the responses.
    pub(crate) fn allowed(&self, origin: Option<&HeaderValue>) -> Option<HeaderValue> {
        let origin = origin?;
        match &self.origins {
            None => Some(HeaderValue::from_static("*")),
            Some(all) => {
                let is_listed = all.iter().any(|one| one.as_str().as_bytes() == origin.as_bytes());
                is_listed.then(|| origin.clone())
            }
        }
    }
}
