//! Ids of URL elicitations that a modern server sends to a legacy client.
//!
//! 2025-11-25 client/elicitation requires an `elicitationId`, and
//! `notifications/elicitation/complete` reports the end of the interaction. 2026-07-28 has neither,
//! so this module makes both. An elicitation is complete when the server continues without asking
//! for it again.

use fanlight_canonical::{ServerMessage, ServerMessages};
use fanlight_protocol::capability::ClientCapability;
use fanlight_protocol::input::InputRequest;
use fanlight_protocol::json::{Edits, ObjectBuilder};
use fanlight_protocol::message::notification_text;
use fanlight_protocol::method::ELICITATION_COMPLETE;
use fanlight_protocol::{Json, Message, Method};

const ELICITATION_ID: &str = "elicitationId";
/// The nesting limit for the notification's text.
const NESTING: usize = 8;

/// Random bytes per id, enough to make it unguessable.
const RANDOM: usize = 16;

/// The URL elicitations of one call.
#[derive(Default)]
pub(super) struct UrlElicitations(Vec<UrlElicitation>);

struct UrlElicitation {
    url: Json,
    id: Box<str>,
    /// Whether the user has agreed to visit the URL.
    is_accepted: bool,
}

impl UrlElicitations {
    /// Adds an id to a URL elicitation that has none. The same URL keeps its id during a call.
    pub(super) fn identify(&mut self, request: &mut InputRequest) {
        let Some(params) = request
            .params
            .as_ref()
            .filter(|params| is_by_url(&request.method, params))
        else {
            return;
        };
        let Some(url) = params
            .get("url")
            .filter(|_| params.get(ELICITATION_ID).is_none())
        else {
            return;
        };
        let at = match self.0.iter().position(|known| known.url == url) {
            Some(at) => at,
            None => {
                let Some(id) = new_id() else { return };
                self.0.push(UrlElicitation {
                    url: url.detached(),
                    id,
                    is_accepted: false,
                });
                self.0.len() - 1
            }
        };
        let Some(known) = self.0.get_mut(at) else {
            return;
        };
        known.is_accepted = false;
        let member = ObjectBuilder::new()
            .string(ELICITATION_ID, &known.id)
            .finish();
        let mut edits = Edits::new(params.bytes().clone());
        edits.insert_members(0, member.inner_text());
        request.params = Some(edits.finish_json());
    }

    /// Records whether the user has agreed to visit `url`.
    pub(super) fn note_answer(&mut self, url: &Json, is_accepted: bool) {
        if let Some(known) = self.0.iter_mut().find(|known| known.url == *url) {
            known.is_accepted = is_accepted;
        }
    }

    /// Reports accepted elicitations as complete that the server no longer asks for. `asked` lists
    /// the inputs that it asks for now.
    pub(super) async fn complete(&mut self, asked: &[InputRequest], messages: &ServerMessages) {
        let is_asked = |known: &UrlElicitation| {
            asked
                .iter()
                .any(|request| url_of(request).as_ref() == Some(&known.url))
        };
        let completed: Vec<_> = self
            .0
            .extract_if(.., |known| known.is_accepted && !is_asked(known))
            .collect();
        for UrlElicitation { id, .. } in completed {
            let params = ObjectBuilder::new().string(ELICITATION_ID, &id).finish();
            let text = notification_text(ELICITATION_COMPLETE, Some(&params));
            if let Ok(Message::Notification(notification)) =
                Message::parse(text.into_bytes(), NESTING)
            {
                messages
                    .send(ServerMessage::Notification(notification))
                    .await;
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The URL of an elicitation by URL.
pub(super) fn url_of(request: &InputRequest) -> Option<Json> {
    request
        .params
        .as_ref()
        .filter(|params| is_by_url(&request.method, params))?
        .get("url")
}

fn is_by_url(method: &Method, params: &Json) -> bool {
    ClientCapability::for_request(method, Some(params)) == Some(ClientCapability::ElicitationByUrl)
}

/// A new elicitation id. It is not a handle: no request accepts it.
fn new_id() -> Option<Box<str>> {
    let mut random = [0; RANDOM];
    getrandom::fill(&mut random).ok()?;
    Some(format!("{:032x}", u128::from_be_bytes(random)).into())
}
