//! Adapts the answers and messages of servers to a client.

use fanlight_canonical::{CallContext, ServerMessage, ServerMessages};
use fanlight_protocol::json::Json;
use fanlight_protocol::{Method, Response};

use super::Gateway;
use crate::catalogue::Change;
use crate::topology::{BackendId, Filtered, View};
use crate::uri_places;
use crate::uris::{Asked, Opened, Renaming};

impl Gateway {
    /// Puts the client's URIs into a server's answer.
    pub(super) async fn translate_answer(
        &self,
        view: &View,
        context: &CallContext,
        backend: BackendId,
        method: &Method,
        response: Response,
        given: Given,
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
        if let Some(how) = given.opens {
            self.handed_out.record_opened(&context.caller, backend, how);
        }
        let places = uri_places::find_in_response(method, &response);
        match view.get(backend) {
            Some(backend) if !places.is_empty() => {
                let renaming = Renaming {
                    view,
                    lists: &self.lists,
                    handed_out: &self.handed_out,
                    context,
                    backend,
                };
                // Boxed: most answers name no URI.
                Box::pin(renaming.apply(response, places, given.asked.as_ref())).await
            }
            _ => response,
        }
    }
}

/// The properties of a request that its answer depends on.
#[derive(Default)]
pub(super) struct Given {
    /// The resource that the request asks for.
    pub(super) asked: Option<Asked>,
    /// The app that the client opens with the request, if any.
    pub(super) opens: Option<Opened>,
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
