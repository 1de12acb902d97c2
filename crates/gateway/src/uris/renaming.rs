//! Replaces the URIs in a server's answer by the client's URIs.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use fanlight_canonical::CallContext;
use fanlight_protocol::Response;
use fanlight_protocol::json::{Edits, Json};

use super::{Claims, HandedOut};
use crate::catalogue::ListWatcher;
use crate::topology::{Member, View};

/// URIs in one result whose server is remembered, if several servers may have them; further ones get aliases.
const RESULT_URIS: usize = 256;

/// The resource that a request asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The server's URI for it.
    pub(crate) original: String,
    /// The client's URI for it.
    pub(crate) visible: String,
}

/// Everything needed to rename the URIs in one server's answers to one client.
pub(crate) struct Renaming<'a> {
    pub(crate) view: &'a View,
    pub(crate) lists: &'a Arc<ListWatcher>,
    pub(crate) handed_out: &'a HandedOut,
    pub(crate) context: &'a CallContext,
    pub(crate) backend: &'a Member,
}

impl Renaming<'_> {
    /// Puts the client's URIs at `places` in the result of `response`. An unlisted URI belongs to
    /// this server from now on.
    pub(crate) async fn apply(
        &self,
        response: Response,
        places: Vec<Range<usize>>,
        asked: Option<&Asked>,
    ) -> Response {
        let Some(result) = response.result() else {
            return response;
        };
        let uris: Vec<_> = places
            .into_iter()
            .filter_map(|place| Some((place.clone(), result.slice(place).to_str()?)))
            .collect();
        let is_asked = |uri: &str| asked.is_some_and(|asked| asked.original == uri);
        let alias = |uri: &str| Some(self.backend.naming.alias(uri));
        let mut names: HashMap<&str, Option<String>> = HashMap::new();
        if asked.is_some_and(|asked| asked.original != asked.visible) {
            // The client asked for the resource by its alias, so the answer uses aliases too.
            names.extend(uris.iter().map(|(_, uri)| (uri.as_str(), alias(uri))));
        } else if uris.iter().any(|(_, uri)| !is_asked(uri)) {
            let all = uris.iter().map(|(_, uri)| uri.as_str());
            let claims = Claims::read(self.view, self.lists, all, &self.context.trace).await;
            for (_, uri) in uris.iter().filter(|(_, uri)| !is_asked(uri)) {
                // URIs beyond the limit get aliases, which need no memory.
                let remembers = names.len() < RESULT_URIS;
                let name = || {
                    if self.needs_alias(&claims, uri, remembers) {
                        alias(uri)
                    } else {
                        None
                    }
                };
                names.entry(uri).or_insert_with(name);
            }
        }
        if names.values().all(Option::is_none) {
            return response;
        }
        let mut edits = Edits::new(result.bytes().clone());
        for (place, uri) in &uris {
            if let Some(alias) = names.get(uri.as_str()).and_then(Option::as_ref) {
                edits.replace(place.clone(), Json::string(alias).into_bytes());
            }
        }
        response.with_body(&edits.finish_json())
    }

    fn needs_alias(&self, claims: &Claims<'_>, uri: &str, remembers: bool) -> bool {
        let (caller, backend) = (&self.context.caller, self.backend.id);
        claims.needs_alias(uri, backend).unwrap_or_else(|| {
            let is_gone = |owner| self.view.topology().get(owner).is_none();
            let owner = if remembers {
                self.handed_out.remember(caller, uri, backend, is_gone)
            } else {
                self.handed_out.owner(caller, uri)
            };
            owner != Some(backend)
        })
    }
}
