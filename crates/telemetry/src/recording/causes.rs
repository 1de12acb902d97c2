//! Finds the client's message that caused a message of a server.

use std::collections::HashMap;

use bytes::Bytes;
use fanlight_protocol::json::DEFAULT_NESTING;
use fanlight_protocol::{Json, Message, Method, Notification};

use super::To;
use super::tap::Captured;

/// The most requests of a connection whose causes are remembered.
const MOST: usize = 10_000;

/// The causes of requests that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Causes {
    connections: HashMap<u64, Open>,
}

/// The requests of one connection to a server, by their ids.
#[derive(Debug, Default)]
struct Open {
    /// Requests to the server, oldest first.
    sent: Vec<Request>,
    /// Requests of the server.
    asked: Vec<Request>,
}

/// A request without an answer.
#[derive(Debug)]
struct Request {
    id: Json,
    progress_token: Option<Json>,
    cause: u64,
}

impl Causes {
    /// The exchange that caused a message. The edge tells the cause of requests to the server, and
    /// of their answers over HTTP. Every other message is related to a request.
    pub(super) fn find(&mut self, captured: &Captured, text: &Bytes) -> Option<u64> {
        let known = Some(captured.cause).filter(|cause| *cause > 0);
        let open = self.connections.entry(captured.connection).or_default();
        let cause = match (Message::parse(text.clone(), DEFAULT_NESTING), captured.to) {
            (Ok(Message::Request(request)), To::Server) => {
                let meta = request.params.and_then(|params| params.get("_meta"));
                let token = meta.and_then(|meta| meta.get("progressToken"));
                remember(&mut open.sent, request.id, token, known);
                known
            }
            (Ok(Message::Response(response)), To::Client) => {
                take(&mut open.sent, &response.id()).or(known)
            }
            (Ok(Message::Request(request)), To::Client) => {
                let cause = known.or_else(|| open.latest());
                remember(&mut open.asked, request.id, None, cause);
                cause
            }
            (Ok(Message::Response(response)), To::Server) => {
                take(&mut open.asked, &response.id()).or(known)
            }
            (Ok(Message::Notification(notification)), _) => {
                known.or_else(|| open.cause_of(&notification))
            }
            (Err(_), _) => known,
        };
        if open.sent.is_empty() && open.asked.is_empty() {
            self.connections.remove(&captured.connection);
        }
        cause
    }
}

impl Open {
    /// The cause of the latest request that the server has not answered.
    fn latest(&self) -> Option<u64> {
        self.sent.last().map(|request| request.cause)
    }

    /// The cause of the request that a notification is about.
    fn cause_of(&self, notification: &Notification) -> Option<u64> {
        let params = notification.text.get("params");
        let member = |name| params.as_ref().and_then(|params| params.get(name));
        let mut all = self.sent.iter().chain(&self.asked);
        let named = match notification.method {
            Method::Progress => {
                let token = member("progressToken")?;
                all.find(|request| request.progress_token.as_ref() == Some(&token))
            }
            Method::Cancelled => {
                let id = member("requestId")?;
                all.find(|request| request.id == id)
            }
            _ => return self.latest(),
        };
        named.map(|request| request.cause)
    }
}

fn remember(open: &mut Vec<Request>, id: Json, progress_token: Option<Json>, cause: Option<u64>) {
    if let Some(cause) = cause.filter(|_| open.len() < MOST) {
        open.push(Request {
            id,
            progress_token,
            cause,
        });
    }
}

fn take(open: &mut Vec<Request>, id: &Json) -> Option<u64> {
    let at = open.iter().position(|request| request.id == *id)?;
    Some(open.remove(at).cause)
}
