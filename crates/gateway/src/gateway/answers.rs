//! Adapts the answers and messages of servers to a client.

use std::collections::HashMap;
use std::ops::Range;

use fanlight_canonical::{CallContext, ServerMessage, ServerMessages};
use fanlight_protocol::json::{Edits, Json};
use fanlight_protocol::{Method, Response};

use super::Gateway;
use crate::catalogue::Change;
use crate::routing::{Asked, Lookup, Routed};
use crate::topology::{BackendId, Filtered, Member, View};
use crate::uri_places;
use crate::uris::Claims;

/// URIs in one result whose server is remembered, if several servers may have them; further ones get aliases.
const RESULT_URIS: usize = 256;

impl Gateway {
    /// Puts the client's URIs into a server's answer.
    pub(super) async fn translate_answer(
        &self,
        view: &View,
        context: &CallContext,
        backend: BackendId,
        method: &Method,
        response: Response,
        routed: Option<&Routed>,
    ) -> Response {
        if response.is_error() {
            return response;
        }
        let response = match method {
            Method::ReadDirectory if view.filters(Filtered::Resources) => {
                shown_directory(view, backend, &response)
            }
            _ => response,
        };
        // Aliases depend on all servers, even if an endpoint shows only one.
        if view.topology().backends().len() < 2 {
            return response;
        }
        if let Some(how) = routed.and_then(|routed| routed.opens) {
            self.directory
                .handed_out
                .record_opened(&context.caller, backend, how);
        }
        let places = uri_places::find_in_response(method, &response);
        match view.get(backend) {
            Some(backend) if !places.is_empty() => {
                let lookup = self.directory.lookup(view, context);
                // Boxed: most answers name no URI.
                let asked = routed.and_then(|routed| routed.asked.as_ref());
                Box::pin(lookup.rename_uris(backend, response, places, asked)).await
            }
            _ => response,
        }
    }
}

impl Lookup<'_> {
    /// Puts the client's URIs at `places` in the result of `response`. An unlisted URI belongs to
    /// this server from now on.
    async fn rename_uris(
        self,
        backend: &Member,
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
        let alias = |uri: &str| Some(backend.naming.alias(uri));
        let mut names: HashMap<&str, Option<String>> = HashMap::new();
        if asked.is_some_and(|asked| asked.original != asked.visible) {
            // The client asked for the resource by its alias, so the answer uses aliases too.
            names.extend(uris.iter().map(|(_, uri)| (uri.as_str(), alias(uri))));
        } else if uris.iter().any(|(_, uri)| !is_asked(uri)) {
            let all = uris.iter().map(|(_, uri)| uri.as_str());
            let (lists, trace) = (&self.directory.lists, &self.context.trace);
            let claims = Claims::read(self.view, lists, all, trace).await;
            for (_, uri) in uris.iter().filter(|(_, uri)| !is_asked(uri)) {
                // URIs beyond the limit get aliases, which need no memory.
                let remembers = names.len() < RESULT_URIS;
                let name = || {
                    let needs_alias = self.needs_alias(backend.id, &claims, uri, remembers);
                    needs_alias.then(|| backend.naming.alias(uri))
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

    fn needs_alias(
        self,
        backend: BackendId,
        claims: &Claims<'_>,
        uri: &str,
        remembers: bool,
    ) -> bool {
        let (caller, handed_out) = (&self.context.caller, &self.directory.handed_out);
        claims.needs_alias(uri, backend).unwrap_or_else(|| {
            let is_gone = |owner| self.view.topology().get(owner).is_none();
            let owner = if remembers {
                handed_out.remember(caller, uri, backend, is_gone)
            } else {
                handed_out.owner(caller, uri)
            };
            owner != Some(backend)
        })
    }
}

/// Removes from a directory listing (SEP-2640, Directory Reading) the resources that an endpoint
/// hides.
fn shown_directory(view: &View, backend: BackendId, response: &Response) -> Response {
    const MEMBER: &str = "resources";
    let result = response.result().unwrap_or_else(Json::empty_object);
    let all = result.get(MEMBER).unwrap_or_default();
    let is_shown = |entry: &Json| {
        let uri = entry.text_at("uri");
        uri.is_some_and(|uri| view.permits_uri(backend, &uri))
    };
    let shown = all.items().filter(is_shown);
    response.with_body(&result.with_member(MEMBER, &Json::array(shown)))
}

/// The channel to a client without what an endpoint hides. During a call, servers send more than
/// progress.
pub(super) fn shown_messages(view: &View, messages: &ServerMessages) -> ServerMessages {
    let view = view.clone();
    messages.with_map(move |message| {
        let ServerMessage::Notification(notification) = &message else {
            return Some(message);
        };
        let is_shown = match &notification.method {
            method if Change::from_method(method).is_some() => false,
            // The channel does not tell which server sent it, so the view must permit it for every
            // server.
            Method::ResourceUpdated => {
                let is_permitted =
                    |uri: &str| view.ids().all(|backend| view.permits_update(backend, uri));
                notification
                    .updated_uri()
                    .is_some_and(|uri| is_permitted(&uri))
            }
            _ => true,
        };
        is_shown.then_some(message)
    })
}
