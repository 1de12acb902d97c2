//! Several messages in one POST, which 2025-03-26 alone has: each is handled as if it were alone,
//! and the requests run side by side.
//!
//! Source: 2025-03-26 basic/transports, Sending Messages to the Server. Must not know: what any
//! message asks.

use bytes::Bytes;
use fanlight_protocol::json::{ArrayBuilder, Chunks};
use fanlight_protocol::{Json, Message, Request, Revision, RpcError};
use http::StatusCode;

use super::fields::Fields;
use super::mcp::{Arrived, Endpoint, Reply, bad_request};
use super::negotiate::Accepts;
use super::reply;
use super::request::Asked;
use crate::params::Params;
use crate::source::{Said, Source};
use crate::trace;
use crate::{era, fault};
use fanlight_canonical::Core;

impl<C: Core> Endpoint<C> {
    /// Whether the request belongs to a session whose revision has batches.
    pub(super) fn speaks_batches(&self, fields: &Fields<'_>) -> bool {
        self.session(fields).is_ok_and(|session| session.revision() == Revision::V2025_03_26)
    }

    /// Handles each message of a batch.
    pub(super) async fn batch(&self, arrived: &Arrived<'_>, accepts: Accepts, text: Bytes) -> Reply {
        let (fields, came) = (&arrived.fields, arrived.came());
        let session = self.session(fields)?;
        let messages = Message::parse_batch(text, self.settings.nesting).ok().flatten().unwrap_or_default();
        fault::check_batch(messages.len(), self.settings.max_batch).map_err(bad_request)?;
        let (mut source, mut wants_answer) = (Source::default(), false);
        for message in messages {
            let refused = match message {
                Ok(Message::Request(request)) => {
                    wants_answer = true;
                    let span = trace::begin(&self.settings, &request, &came);
                    match read(&request) {
                        Ok(params) => {
                            let mut asked = Asked { fields, accepts, request, params, span };
                            source.add(self.begin(session.clone(), &mut asked).await);
                            None
                        }
                        Err(error) => Some((error, Some(request.id))),
                    }
                }
                // Nothing answers these, whether they could be used or not.
                Ok(Message::Notification(notification)) => {
                    drop(self.notification(fields, &notification));
                    None
                }
                Ok(Message::Response(response)) => {
                    drop(self.response(fields, response));
                    None
                }
                Err(error) => Some(fault::of_message(error, self.settings.nesting)),
            };
            if let Some((error, id)) = refused {
                wants_answer = true;
                source.put_back(Said::Answer(message_of(&error, id.as_ref()), Some(error.code), None));
            }
        }
        if !wants_answer {
            return Ok(reply::empty(StatusCode::ACCEPTED));
        }
        if accepts.events {
            return Ok(self.stream(source, Some(session), true));
        }
        Ok(all(source).await)
    }
}

/// The params of a request that may come in a batch.
fn read(request: &Request) -> Result<Params, RpcError> {
    let params = Params::read(request.params.as_ref())?;
    fault::check_in_batch(&request.method, era::of_request(&request.method, &params.meta, None))?;
    Ok(params)
}

/// For a client that takes no stream: every answer in one array, once all are there.
async fn all(mut source: Source) -> http::Response<reply::ReplyBody> {
    let mut answers = ArrayBuilder::default();
    let mut any = false;
    let mut endings = Vec::new();
    while let Some(said) = source.next().await {
        if let Said::Answer(text, _, ending) = said
            && let Ok(text) = Json::parse(text.into_bytes(), fanlight_protocol::json::MAX_NESTING)
        {
            any = true;
            answers.push(&text);
            endings.extend(ending);
        }
    }
    // All have been cancelled.
    if !any {
        return reply::empty(StatusCode::ACCEPTED);
    }
    let mut text = Chunks::default();
    text.push(answers.finish().into_bytes());
    let mut response = reply::json(StatusCode::OK, text);
    endings.into_iter().for_each(|ending| response.body_mut().ends(Some(ending)));
    response
}

fn message_of(error: &RpcError, id: Option<&Json>) -> Chunks {
    let mut text = Chunks::default();
    text.push(fault::message(id, error).into_bytes());
    text
}
