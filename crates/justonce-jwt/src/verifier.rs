//! Verifies the tokens of requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};
use justonce_core::worker::Schedule;
use justonce_core::{Clock, Timestamp};
use justonce_http::{TokenRefusal, TokenVerifier, Verification, VerifiedClaims};
use serde_json::Value;

use crate::cache::{Entry, Tokens, tokens};
use crate::check::check;
use crate::key_set::Signed;
use crate::keys::{Demand, Issuer};
use crate::metrics::CheckMeters;
use crate::settings::IssuerSettings;
use crate::token::{MAX_TOKEN_BYTES, Token};

/// `Retry-After` where there are no keys and a fetch has just failed.
const RETRY_SOON: Duration = Duration::from_secs(2);

/// What a verifier takes from the program around it.
#[derive(Clone)]
pub struct VerifierParts {
    /// By this clock tokens expire.
    pub clock: Arc<dyn Clock>,
    /// Makes the schedule of fetches with a pause.
    pub schedule: Arc<dyn Fn(Duration) -> Schedule + Send + Sync>,
}

/// Verifies tokens of some issuers.
pub struct Verifier {
    issuers: Vec<Arc<Issuer>>,
    /// The headers that may have a token, each once.
    headers: Vec<HeaderName>,
    tokens: Tokens,
    parts: VerifierParts,
    meters: CheckMeters,
}

impl Verifier {
    /// A verifier. The keys of all issuers are fetched in the background from now on.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, if there is an issuer.
    #[must_use]
    pub fn new(issuers: Vec<IssuerSettings>, parts: VerifierParts) -> Arc<Self> {
        Self::with(issuers, parts, &[])
    }

    /// The same with other issuers. Those whose settings are as before keep their keys. Others
    /// fetch them again at once, and keep those that they had from the same place if that fails.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    #[must_use]
    pub fn renewed(self: &Arc<Self>, issuers: Vec<IssuerSettings>) -> Arc<Self> {
        if self.issuers.iter().map(|issuer| &*issuer.settings).eq(&issuers) {
            return Arc::clone(self);
        }
        Self::with(issuers, self.parts.clone(), &self.issuers)
    }

    fn with(
        issuers: Vec<IssuerSettings>,
        parts: VerifierParts,
        before: &[Arc<Issuer>],
    ) -> Arc<Self> {
        let start = |settings: IssuerSettings| {
            if let Some(same) = before.iter().find(|old| *old.settings == settings) {
                return Arc::clone(same);
            }
            let named = before.iter().find(|old| old.settings.name == settings.name);
            let (clock, schedule) = (Arc::clone(&parts.clock), &*parts.schedule);
            Arc::new(Issuer::start(settings, clock, schedule, named.map(|old| &**old)))
        };
        let issuers: Vec<Arc<Issuer>> = issuers.into_iter().map(start).collect();
        let mut headers: Vec<HeaderName> = Vec::new();
        for issuer in &issuers {
            if !headers.contains(&issuer.settings.header) {
                headers.push(issuer.settings.header.clone());
            }
        }
        let meters = CheckMeters::default();
        Arc::new(Self { issuers, headers, tokens: tokens(), parts, meters })
    }

    /// Verifies a token; nothing if newer keys have to be waited for.
    fn verify_now(&self, header: &HeaderName, text: &str) -> Result<VerifiedClaims, Undecided> {
        let now = self.parts.clock.now();
        let hash = hash(header, text);
        if let Some(claims) = self.cached(&hash, now) {
            self.meters.cached.increment(1);
            return Ok(claims);
        }
        let mut token = Token::parse(text)?;
        let named = token.claims.get("iss").and_then(Value::as_str);
        let mut issuers = self.issuers.iter().enumerate();
        let found = issuers.find(|(_, one)| {
            one.settings.header == *header && named == Some(one.settings.issuer.as_str())
        });
        let (place, issuer) = found.ok_or(TokenRefusal::Issuer)?;
        let (algorithm, times) = check(&token, &issuer.settings, now)?;
        let Some(known) = issuer.keys.known() else { return Err(Undecided::NoKeys(place)) };
        let id = token.header.kid.as_deref();
        match known.set.check(id, algorithm, token.signed, &token.signature) {
            Signed::ByKey => {}
            Signed::Wrongly => return Err(TokenRefusal::Signature.into()),
            Signed::ByUnknownKey => return Err(Undecided::UnknownKey(place)),
        }
        self.meters.verified.increment(1);
        let claims = std::mem::take(&mut token.claims);
        let claims = VerifiedClaims::new(issuer.settings.issuer.as_str(), claims);
        let (generation, length) = (known.generation, text.len() as u64);
        let entry = Entry { claims: claims.clone(), times, issuer: place, generation, length };
        self.tokens.insert(hash, entry);
        Ok(claims)
    }

    /// What a token that was verified before says, if it still counts.
    fn cached(&self, hash: &[u8; 32], now: Timestamp) -> Option<VerifiedClaims> {
        let entry = self.tokens.get(hash)?;
        let issuer = self.issuers.get(entry.issuer)?;
        let is_current =
            issuer.keys.known().is_some_and(|keys| keys.generation == entry.generation);
        if is_current && entry.times.check(now, issuer.settings.leeway).is_ok() {
            return Some(entry.claims);
        }
        self.tokens.remove(hash);
        None
    }

    /// Verifies a token that the present keys do not decide about.
    async fn verify_later(
        &self,
        header: &HeaderName,
        text: &str,
        mut undecided: Undecided,
    ) -> Result<VerifiedClaims, TokenRefusal> {
        let mut has_waited = false;
        loop {
            let (place, refusal) = match undecided {
                Undecided::Refused(refusal) => return Err(refusal),
                Undecided::UnknownKey(place) => (place, TokenRefusal::Key),
                Undecided::NoKeys(place) => (place, TokenRefusal::Unavailable(RETRY_SOON)),
            };
            let keys = &self.issuers.get(place).ok_or(TokenRefusal::Issuer)?.keys;
            let is_new = match keys.demand() {
                Demand::JustFetched => return Err(refusal),
                Demand::JustFailed(time) => return Err(TokenRefusal::Unavailable(time)),
                Demand::Wait { number, is_new } => {
                    keys.wait(number).await;
                    is_new
                }
            };
            undecided = match self.verify_now(header, text) {
                Ok(claims) => return Ok(claims),
                // The next one has begun later, or there is none now.
                Err(undecided) if !is_new && !has_waited => undecided,
                Err(Undecided::Refused(refusal)) => return Err(refusal),
                Err(Undecided::UnknownKey(_)) if keys.has_succeeded() => {
                    return Err(TokenRefusal::Key);
                }
                // It may be signed with a key that could not be had.
                Err(_) => return Err(TokenRefusal::Unavailable(RETRY_SOON)),
            };
            has_waited = true;
        }
    }

    fn counted(
        &self,
        result: Result<VerifiedClaims, TokenRefusal>,
    ) -> Result<VerifiedClaims, TokenRefusal> {
        if result.is_err() {
            self.meters.refused.increment(1);
        }
        result
    }
}

impl TokenVerifier for Verifier {
    fn verify<'a>(&'a self, headers: &'a HeaderMap) -> Verification<'a> {
        let (name, text) = match token_of(headers, &self.headers) {
            Ok(found) => found,
            Err(refusal) => return Verification::Done(self.counted(Err(refusal))),
        };
        match self.verify_now(name, text) {
            Ok(claims) => Verification::Done(Ok(claims)),
            Err(Undecided::Refused(refusal)) => Verification::Done(self.counted(Err(refusal))),
            Err(undecided) => Verification::Pending(Box::pin(async move {
                self.counted(self.verify_later(name, text, undecided).await)
            })),
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let issuers: Vec<&str> =
            self.issuers.iter().map(|one| one.settings.name.as_str()).collect();
        f.debug_struct("Verifier").field("issuers", &issuers).finish_non_exhaustive()
    }
}

impl fmt::Debug for VerifierParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifierParts").finish_non_exhaustive()
    }
}

/// Why a token is not verified now.
enum Undecided {
    /// It never will be.
    Refused(TokenRefusal),
    /// Its key is not among those of the issuer at this place.
    UnknownKey(usize),
    /// The issuer at this place has no keys.
    NoKeys(usize),
}

impl From<TokenRefusal> for Undecided {
    fn from(refusal: TokenRefusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The only token in these headers. With two, we might read one and the service the other.
fn token_of<'h>(
    headers: &'h HeaderMap,
    names: &'h [HeaderName],
) -> Result<(&'h HeaderName, &'h str), TokenRefusal> {
    let lines = names.iter().flat_map(|name| {
        headers.get_all(name).into_iter().map(move |line| (name, line.as_bytes()))
    });
    let mut lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    let (name, line) = lines.next().ok_or(TokenRefusal::Missing)?;
    if lines.next().is_some() {
        return Err(TokenRefusal::Ambiguous);
    }
    let token = if *name == AUTHORIZATION { bearer(line)? } else { line.trim_ascii() };
    if token.len() > MAX_TOKEN_BYTES {
        return Err(TokenRefusal::TooLong);
    }
    let text = std::str::from_utf8(token).map_err(|_| TokenRefusal::Malformed)?;
    Ok((name, text))
}

/// The token of `Authorization: Bearer`. Other schemes have none.
fn bearer(line: &[u8]) -> Result<&[u8], TokenRefusal> {
    let line = line.trim_ascii();
    let at = line.iter().position(|byte| *byte == b' ').ok_or(TokenRefusal::Missing)?;
    let (scheme, token) = line.split_at(at);
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        return Err(TokenRefusal::Missing);
    }
    Ok(token.trim_ascii())
}

/// The name of a token in the cache: issuers read different headers.
fn hash(header: &HeaderName, token: &str) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(header.as_str().len() as u64).to_le_bytes());
    hasher.update(header.as_str().as_bytes());
    hasher.update(token.as_bytes());
    *hasher.finalize().as_bytes()
}
