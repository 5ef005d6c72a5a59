//! The files that a configuration names, and their contents.

use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;

use crate::config::{AdminToken, Settings, StoreUrl, UpstreamSettings};

/// A hash of a file's content; none if it cannot be read.
pub(crate) type Content = Option<blake3::Hash>;

/// The content of a file, links followed.
pub(crate) fn content(path: &Path) -> Content {
    std::fs::read(path).ok().map(|bytes| blake3::hash(&bytes))
}

/// A file that is read when the gateway starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedFile {
    /// The setting that names it.
    pub(crate) setting: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) content: Content,
}

/// The files that are reloaded while the gateway runs: certificates, keys and tokens.
pub(crate) fn renewed(settings: &Settings) -> Vec<NamedFile> {
    let mut files = Vec::new();
    if let Some(tls) = &settings.tls {
        files.push(named("tls.cert", &tls.cert));
        files.push(named("tls.key", &tls.key));
        files.extend(tls.clients.iter().map(|clients| named("tls.client_ca", &clients.ca)));
    }
    let tokens = [
        ("admin_token_file", &settings.admin_token),
        ("callback_token_file", &settings.callback_token),
    ];
    for (setting, token) in tokens {
        if let Some(AdminToken::File(path)) = token {
            files.push(named(setting, path));
        }
    }
    files.extend(of_upstreams(settings));
    files
}

/// The files of TLS to all upstreams.
pub(crate) fn of_upstreams(settings: &Settings) -> Vec<NamedFile> {
    settings.upstreams.iter().flat_map(|upstream| of_upstream(upstream, settings)).collect()
}

/// The files of TLS to one upstream.
pub(crate) fn of_upstream(upstream: &UpstreamSettings, settings: &Settings) -> Vec<NamedFile> {
    if upstream.urls.iter().all(|url| !url.starts_with("https:")) {
        return Vec::new();
    }
    let mut files = Vec::new();
    match (&upstream.tls.ca, &settings.upstream_ca) {
        (Some(own), _) => files.push(named("upstreams.NAME.tls.ca", own)),
        (None, Some(more)) => files.push(named("upstream_tls.ca", more)),
        (None, None) => {}
    }
    if let Some((cert, key)) = &upstream.tls.identity {
        files.push(named("upstreams.NAME.tls.cert", cert));
        files.push(named("upstreams.NAME.tls.key", key));
    }
    files
}

/// The files that are read only at the start: TLS trust roots of stores.
pub(crate) fn at_start(settings: &Settings) -> Vec<NamedFile> {
    let mut files = Vec::new();
    if let Some(path) = &settings.stores.redis.ca {
        files.push(named("redis.ca", path));
    }
    if let Some(path) = postgres_roots(&settings.store) {
        files.push(named("sslrootcert", &path));
    }
    files
}

fn named(setting: &'static str, path: &Path) -> NamedFile {
    NamedFile { setting, path: path.to_owned(), content: content(path) }
}

/// The file that the address of a PostgreSQL store names.
fn postgres_roots(store: &StoreUrl) -> Option<PathBuf> {
    let (StoreUrl::Postgres(url) | StoreUrl::Tiered { postgres: url, .. }) = store else {
        return None;
    };
    let (_, query) = url.reveal().split_once('?')?;
    let value = query.split('&').find_map(|part| part.strip_prefix("sslrootcert="))?;
    let path = percent_decode_str(value).decode_utf8_lossy().into_owned();
    (!path.is_empty() && path != "system").then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerUrl;

    #[test]
    fn the_roots_of_postgresql_are_found_in_its_address() {
        let roots = |url: &str| {
            let store = StoreUrl::Postgres(ServerUrl::new(url));
            postgres_roots(&store).map(|path| path.display().to_string())
        };
        let url = "postgres://u:p@db/shop?sslmode=verify-full&sslrootcert=/a%20b.pem";
        assert_eq!(roots(url).as_deref(), Some("/a b.pem"));
        assert_eq!(roots("postgres://db/shop?sslrootcert=system"), None);
        assert_eq!(roots("postgres://db/shop"), None);
    }
}
